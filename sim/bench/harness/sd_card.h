// A memory card in SPI mode, as the SD Specifications, Part 1, chapter 7 have it, beside a simulation: it sees three
// wires once a cycle and drives the fourth. What it is asked wrongly it answers as a card does, or not at all.
//
// Settings, all 0 at first: `card` which card is in the slot; `card_rounds` how often it is not yet ready; `card_wait`
// bytes before an answer, and eight times that before a block; `card_flip` a block (counted from 1) one bit of which is
// turned over on the line, `card_flips` times; `card_token` a block (from 1) that cannot be read; `card_mute` blocks after
// which it is pulled out, from 1; `card_asleep` resets (CMD0) that it ignores after power-up, `card_deaf` first commands 8
// and 59 that it ignores, each. Of writes: `card_protect` 1: it is write-protected; `card_bad` a block (from 1) that
// cannot be stored; `card_spoil` a block (from 1) one bit of which is turned over on its way to the card, `card_spoils`
// times; `card_cut` bytes on the line while a write is under way, after which power goes: the block in flight is torn
// then, by `card_seed`; `card_hung` cycles without power after which a card that hangs, and holds its line low, forgets
// that. The card's end is the end of its content.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

class SdCard {
public:
    enum Kind { NONE, LARGE, STANDARD, OLD, MULTIMEDIA, WRONG_VOLTAGE, STUCK };
    // Cycles, 5 ns each: what a card may take to move its output, the shortest period of the clock at 25 MHz. Its period
    // at 400 kHz would be 500; the bench shortens it, as it does the UART's.
    static constexpr unsigned OUTPUT_DELAY = 3, DATA_PERIOD = 8, IDENTIFICATION_PERIOD = 20;

    std::vector<uint8_t> content;
    // What the host did that no card need bear: clocks too fast, too few of them before the first command.
    uint64_t violations = 0, commands = 0, blocks = 0;
    // Blocks stored, bytes on the line while a write is under way, and whether power has gone.
    uint64_t stored = 0, write_bytes = 0;
    bool dark = false;

    bool set(const char *name, uint64_t value) {
        static const char *const names[] = {"card", "card_rounds", "card_wait", "card_flip", "card_flips", "card_token",
                                            "card_mute", "card_asleep", "card_deaf", "card_protect", "card_bad", "card_spoil",
                                            "card_spoils", "card_cut", "card_seed", "card_hung"};
        for (unsigned i = 0; i < sizeof names / sizeof *names; ++i)
            if (!strcmp(name, names[i])) {
                settings[i] = value;
                if (i == 0) power_up();
                return true;
            }
        return false;
    }

    // One cycle: the wires as they are after its edge. Gives the card's own.
    bool step(bool sclk, bool mosi, bool cs_n) {
        ++now;
        if (!powered) return unpowered(sclk || mosi || cs_n);
        if (sclk && !clock_was) rising(mosi, cs_n);
        if (!sclk && clock_was) {
            due = now + OUTPUT_DELAY;
            next = cs_n || !spi ? true : (out_byte >> (7 - out_bits)) & 1;
        }
        if (cs_n && !deselected) drop();
        deselected = cs_n;
        clock_was = sclk;
        if (due == now) line = next;
        if (dark) return true;
        if (hangs()) return false;
        return settings[0] == NONE || pulled() ? true : line;
    }

    // Power of the slot. Power that is gone for all, and a card that was pulled out, stay away.
    void supply(bool on) {
        if (on == powered) return;
        powered = on;
        left = now;
        if (!on || dark || pulled()) return;
        line = next = true;
        clock_was = false;
        drop();
        power_up();
    }

    // The same for some cycles in which no wire moves.
    bool rest(unsigned cycles) {
        if (due > now && due <= now + cycles) line = next;
        now += cycles;
        if (dark) return true;
        if (hangs()) return false;
        return settings[0] == NONE || pulled() ? true : line;
    }

private:
    enum { PROTECT = 9, BAD, SPOIL, SPOILS, CUT, SEED, HUNG };
    uint64_t settings[16] = {};
    uint64_t now = 0, due = 0, rose = 0, wake = 0, left = 0;
    bool powered = true;
    bool clock_was = false, line = true, next = true, deselected = true;
    bool spi = false, idle = true, sums = false, application = false, conditioned = false;
    uint64_t rounds = 0, position = 0, resets = 0, conditions = 0, checks = 0;
    bool streams = false;
    // A write under way: what the card waits for, what has arrived of a block, and what it says of writes.
    enum { NO_WRITE, TOKEN, DATA } writes = NO_WRITE;
    std::vector<uint8_t> arriving;
    uint64_t busy = 0;
    uint8_t status = 0, before[512] = {};
    // Whether what it is busy with is a block.
    bool stores = false;
    unsigned in_bits = 0, out_bits = 0;
    uint8_t in_byte = 0, out_byte = 0xff;
    std::vector<uint8_t> frame;
    std::deque<uint8_t> queue;

    // A card without power is fed by any wire that is high.
    bool unpowered(bool fed) {
        violations += fed;
        if (now - left >= settings[HUNG]) settings[HUNG] = 0;
        return true;
    }
    bool hangs() const { return settings[0] == STUCK || settings[HUNG]; }
    Kind kind() const { return static_cast<Kind>(settings[0]); }
    bool pulled() const { return settings[6] && blocks >= settings[6]; }
    bool by_blocks() const { return kind() == LARGE; }

    void power_up() {
        spi = sums = application = conditioned = streams = dark = false;
        writes = NO_WRITE;
        busy = write_bytes = status = 0;
        idle = true;
        wake = rounds = blocks = resets = conditions = checks = 0;
        queue.clear();
        frame.clear();
    }

    // An answer does not outlive the selection; a stream of blocks does.
    void drop() {
        in_bits = out_bits = 0;
        out_byte = 0xff;
        frame.clear();
        if (!streams) queue.clear();
    }

    void rising(bool mosi, bool cs_n) {
        if (pulled()) return;
        uint64_t period = now - rose;
        rose = now;
        if (period < (spi && !idle ? DATA_PERIOD : IDENTIFICATION_PERIOD)) ++violations;
        if (cs_n) {
            if (!spi) wake += mosi;
            return;
        }
        in_byte = static_cast<uint8_t>(in_byte << 1 | mosi);
        if (++in_bits == 8) {
            in_bits = 0;
            take(in_byte);
        }
        // What is to be seen after the clock's fall.
        if (++out_bits == 8) {
            out_bits = 0;
            if (queue.empty() && streams) fill();
            out_byte = 0xff;
            if (!queue.empty()) {
                out_byte = queue.front();
                queue.pop_front();
            }
        }
    }

    void take(uint8_t byte) {
        if (writes != NO_WRITE || busy) {
            if (settings[CUT] && ++write_bytes >= settings[CUT]) return cut();
            if (!settings[CUT]) ++write_bytes;
        }
        if (busy) --busy;
        if (writes == DATA) return take_data(byte);
        if (writes == TOKEN && frame.empty() && byte == 0xfc) {
            arriving.clear();
            writes = DATA;
            return;
        }
        if (writes == TOKEN && frame.empty() && byte == 0xfd) {
            writes = NO_WRITE;
            stores = false;
            queue.push_back(0xff);
            return be_busy();
        }
        if (frame.empty() && (byte & 0xc0) != 0x40) return;
        frame.push_back(byte);
        if (frame.size() < 6) return;
        std::vector<uint8_t> whole;
        whole.swap(frame);
        ++commands;
        execute(whole);
    }

    void be_busy() {
        busy = 2 + settings[2];
        for (uint64_t i = 0; i < busy; ++i) queue.push_back(0x00);
    }

    uint64_t random() {
        uint64_t &x = settings[SEED];
        x += 0x9e3779b97f4a7c15u;
        uint64_t z = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }

    // Power goes: of the block in flight, some bytes are new, some old, some neither.
    void cut() {
        dark = true;
        if (writes != DATA && !(busy && stores)) return;
        uint8_t *block = &content[(writes == DATA ? position : position - 1) * 512];
        if (writes == DATA && position * 512 + 512 > content.size()) return;
        if (writes != DATA) memcpy(block, before, 512);
        const uint64_t kind = random() % 3, edge = random() % 513;
        for (unsigned i = 0; i < 512; ++i) {
            const uint8_t fresh = i < arriving.size() ? arriving[i] : static_cast<uint8_t>(random());
            if (kind == 0 ? i < edge : kind == 1 ? random() & 1 : false) block[i] = fresh;
            else if (kind == 2) block[i] = static_cast<uint8_t>(random());
        }
    }

    void take_data(uint8_t byte) {
        arriving.push_back(byte);
        if (arriving.size() < 514) return;
        const uint64_t number = position + 1;
        if (settings[SPOIL] == number && settings[SPOILS]) {
            --settings[SPOILS];
            arriving[number % 512] ^= 0x10;
        }
        writes = TOKEN;
        const unsigned sum = arriving[512] << 8 | arriving[513];
        uint8_t answer = 0xe5;
        if (sums && sum != sum16(arriving.data(), 512)) answer = 0xeb;
        else if (settings[PROTECT]) { answer = 0xed; status = 0x20; }
        else if (settings[BAD] == number) { answer = 0xed; status = 0x04; }
        else if (number * 512 > content.size()) { answer = 0xed; status = 0x80; }
        stores = answer == 0xe5;
        if (stores) {
            memcpy(before, &content[position * 512], 512);
            memcpy(&content[position * 512], arriving.data(), 512);
            ++position;
            ++stored;
        }
        for (uint64_t i = 0; i < settings[2] % 8; ++i) queue.push_back(0xff);
        queue.push_back(answer);
        be_busy();
    }

    static uint8_t sum7(const std::vector<uint8_t> &bytes, unsigned count) {
        unsigned sum = 0;
        for (unsigned i = 0; i < count; ++i)
            for (int bit = 7; bit >= 0; --bit) {
                unsigned feedback = (sum >> 6 ^ bytes[i] >> bit) & 1;
                sum = (sum << 1 & 0x7f) ^ (feedback ? 0x09 : 0);
            }
        return static_cast<uint8_t>(sum << 1 | 1);
    }

    static uint16_t sum16(const uint8_t *bytes, unsigned count) {
        unsigned sum = 0;
        for (unsigned i = 0; i < count; ++i)
            for (int bit = 7; bit >= 0; --bit) {
                unsigned feedback = (sum >> 15 ^ bytes[i] >> bit) & 1;
                sum = (sum << 1 & 0xffff) ^ (feedback ? 0x1021 : 0);
            }
        return static_cast<uint16_t>(sum);
    }

    void answer(uint8_t r1, std::initializer_list<uint8_t> more = {}) {
        for (uint64_t i = 0; i <= settings[2]; ++i) queue.push_back(0xff);
        queue.push_back(r1 | idle);
        queue.insert(queue.end(), more);
    }

    void execute(const std::vector<uint8_t> &command) {
        const unsigned index = command[0] & 0x3f;
        const uint32_t argument = uint32_t(command[1]) << 24 | command[2] << 16 | command[3] << 8 | command[4];
        const bool extended = application;
        application = false;
        if (!spi) {
            // Still in SD mode: only the first command with its sum, after 74 clocks, changes that.
            if (index || command[5] != 0x95) return;
            if (wake < 74) { ++violations; return; }
            if (resets++ < settings[7]) return;
            spi = true;
        }
        if (index == 8 && conditions++ < settings[8]) return;
        if (index == 59 && checks++ < settings[8]) return;
        queue.clear();
        if (streams && index == 12) queue.push_back(0x7f);  // the rest of a block
        streams = false;
        writes = NO_WRITE;
        if ((sums || index == 0 || index == 8) && command[5] != sum7(command, 5)) return answer(0x08);
        if (index == 0) {
            idle = true;
            sums = conditioned = false;
            rounds = 0;
            return answer(0);
        }
        if (index == 8 && kind() != OLD && kind() != MULTIMEDIA) {
            conditioned = (argument >> 8 & 0xf) == 1 && kind() != WRONG_VOLTAGE;
            return answer(0, {0, 0, static_cast<uint8_t>(conditioned), static_cast<uint8_t>(argument)});
        }
        if (index == 59) { sums = argument & 1; return answer(0); }
        if (index == 58) {
            const uint8_t first = idle ? 0x00 : by_blocks() ? 0xc0 : 0x80;
            return answer(0, {first, 0xff, 0x80, 0x00});
        }
        if (index == 55 && kind() != MULTIMEDIA) { application = true; return answer(0); }
        if (index == 41 && extended) {
            // A large card does not start for a host that knows of none.
            if ((kind() != LARGE || (conditioned && argument >> 30 & 1)) && rounds++ >= settings[1]) idle = false;
            return answer(0);
        }
        if (idle) return answer(0x04);
        if (index == 12) {
            answer(0);
            for (uint64_t i = 0; i < settings[2]; ++i) queue.push_back(0x00);  // busy
            return;
        }
        if (index == 13) {
            answer(0, {status});
            status = 0;
            return;
        }
        if (index == 25) {
            if (!by_blocks() && argument % 512) return answer(0x20);
            position = by_blocks() ? argument : argument / 512;
            answer(position * 512 < content.size() ? 0 : 0x40);
            if (position * 512 < content.size()) writes = TOKEN;
            return;
        }
        if (index == 16) return answer(argument == 512 ? 0 : 0x40);
        if (index == 17 || index == 18) {
            if (!by_blocks() && argument % 512) return answer(0x20);
            position = by_blocks() ? argument : argument / 512;
            answer(position * 512 < content.size() ? 0 : 0x40);
            if (position * 512 >= content.size()) return;
            fill();
            streams = index == 18;
            return;
        }
        answer(0x04);
    }

    // The next block into the queue.
    void fill() {
        for (uint64_t i = 0; i < 1 + 8 * settings[2]; ++i) queue.push_back(0xff);
        if (position * 512 >= content.size() || settings[5] == position + 1) {
            queue.push_back(settings[5] == position + 1 ? 0x04 : 0x08);
            streams = false;
            return;
        }
        uint8_t block[512] = {};
        memcpy(block, &content[position * 512], std::min<size_t>(512, content.size() - position * 512));
        const uint16_t sum = sums ? sum16(block, 512) : 0xffff;
        if (settings[3] == position + 1 && settings[4]) {
            --settings[4];
            block[position % 512] ^= 0x10;
        }
        queue.push_back(0xfe);
        queue.insert(queue.end(), block, block + 512);
        queue.push_back(sum >> 8);
        queue.push_back(sum & 0xff);
        ++position;
        ++blocks;
    }
};
