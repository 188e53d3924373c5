// soc_sd.c on this machine, wire by wire against the model of a card, at the pace of the board's identification.
// Usage: card_host KIND ASLEEP DEAF HUNG TOKEN TRIES: as in sd_card.h. Prints what sd_start says, milliseconds at 400 kHz, what the
// card had to bear, and milliseconds that it had no power; of a card that is ready, what sd_read says of a block and three words
// behind the first block, how many words are the card's, and bytes on the line.
#include <cstdio>
#include <cstdlib>

#include "sd_card.h"

constexpr int BLOCKS = 40, WORDS = 131;

static SdCard card;
static bool selected, fast, miso = true;
static unsigned tries;
static uint32_t arrived;
static uint64_t bits, dark_bits, sent;
static bool powered = true;

static uint32_t shift(uint32_t byte) {
    uint32_t got = 0;
    ++sent;
    for (int bit = 7; bit >= 0; --bit) {
        const bool mosi = powered && byte >> bit & 1;
        for (unsigned n = 0; n < SdCard::IDENTIFICATION_PERIOD / 2; ++n) miso = card.step(false, mosi, powered && !selected);
        got = got << 1 | miso;
        for (unsigned n = 0; n < SdCard::IDENTIFICATION_PERIOD / 2; ++n) miso = card.step(powered, mosi, powered && !selected);
        bits += !fast;
        dark_bits += !powered;
    }
    return got;
}

extern "C" {
void host_card(uint32_t selects, uint32_t hurries) { selected = selects; fast = hurries; }
void host_card_power(uint32_t on) { selected = fast = false; powered = on; card.supply(on); }
void host_card_send(uint32_t byte) { arrived = shift(byte); }
uint32_t host_card_got() { return arrived; }
void host_card_give(uint32_t word) { arrived = 0; for (int n = 0; n < 4; ++n) arrived |= shift(word >> 8 * n & 0xff) << 8 * n; }
uint32_t host_card_word() { return arrived; }
uint32_t host_card_tries() { return tries; }
const char *sd_start();
const char *sd_read(uint32_t, uint32_t, volatile uint32_t *, uint32_t *);
}

int main(int, char **argv) {
    const char *names[] = {"card", "card_asleep", "card_deaf", "card_hung", "card_token"};
    for (int n = 0; n < 5; ++n) card.set(names[n], atoi(argv[1 + n]));
    tries = atoi(argv[6]);
    for (int n = 0; n < BLOCKS * 512; ++n) card.content.push_back(7 * n + n / 512);
    for (int n = 0; n < 100; ++n) miso = card.step(false, true, true);
    const char *why = sd_start();
    printf("%s\n%llu\n%llu\n%llu\n", why ? why : "ready", (unsigned long long)(bits / 400),
           (unsigned long long)card.violations, (unsigned long long)(dark_bits / 400));
    if (why) return 0;
    uint32_t words[WORDS + 1] = {}, sum = 0, right = 0;
    sent = 0;
    why = sd_read(1, WORDS, words, &sum);
    for (; right < WORDS && !memcmp(&words[right], &card.content[512 + 4 * right], 4); ++right) {}
    printf("%s\n%u\n%llu\n", why ? why : "read", right + words[WORDS], (unsigned long long)sent);
    return 0;
}
