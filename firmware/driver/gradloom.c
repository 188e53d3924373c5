/* SPDX-License-Identifier: Apache-2.0 */
#include "gradloom.h"

#define REGISTER(name) ((uint32_t)offsetof(gradloom_t, name))
/* Formats that this driver speaks. */
enum { TABLE_FORMAT = 2, PROGRAM_FORMAT = 2 };

#define FIELD(value, reg, field) \
    (((value) & GRADLOOM__##reg##__##field##_bm) >> GRADLOOM__##reg##__##field##_bp)

uint32_t gl_read(const gl_device *device, uint32_t offset)
{
    return device->read ? device->read(device->context, offset) : device->base[offset / 4];
}

void gl_write(const gl_device *device, uint32_t offset, uint32_t value)
{
    if (device->write)
        device->write(device->context, offset, value);
    else
        device->base[offset / 4] = value;
}

static uint64_t get_pair(const gl_device *device, uint32_t low)
{
    return (uint64_t)gl_read(device, low + 4) << 32 | gl_read(device, low);
}

static int status(const gl_device *device, uint32_t bits)
{
    return (gl_read(device, REGISTER(STATUS)) & bits) != 0;
}

static int busy(const gl_device *device)
{
    return status(device, GRADLOOM__STATUS__BUSY_bm);
}

/* Registers that both programs use are locked. */
static int occupied(const gl_device *device)
{
    return status(device, GRADLOOM__STATUS__BUSY_bm | GRADLOOM__STATUS__REQUEST_BUSY_bm);
}

static int wait_idle(const gl_device *device, uint32_t polls)
{
    while (busy(device))
        if (polls-- == 0)
            return GL_TIMEOUT;
    return GL_OK;
}

void gl_init_mmio(gl_device *device, volatile void *base)
{
    device->base = (volatile uint32_t *)base;
    device->read = NULL;
    device->write = NULL;
    device->context = NULL;
}

void gl_init_access(gl_device *device, uint32_t (*read)(void *, uint32_t),
                    void (*write)(void *, uint32_t, uint32_t), void *context)
{
    device->base = NULL;
    device->read = read;
    device->write = write;
    device->context = context;
}

int gl_probe(const gl_device *device, gl_config *config)
{
    uint32_t version, machine, memory;

    if (gl_read(device, REGISTER(ID)) != GRADLOOM__ID__MAGIC_reset)
        return GL_NOT_FOUND;
    version = gl_read(device, REGISTER(VERSION));
    if (FIELD(version, VERSION, MAJOR) != GRADLOOM__VERSION__MAJOR_reset)
        return GL_VERSION;
    machine = gl_read(device, REGISTER(MACHINE));
    if (FIELD(machine, MACHINE, TABLE_FORMAT) != TABLE_FORMAT || FIELD(machine, MACHINE, PROGRAM_FORMAT) != PROGRAM_FORMAT)
        return GL_VERSION;
    if (config) {
        memory = gl_read(device, REGISTER(CONFIG_MEMORY));
        config->version = version;
        config->engines = FIELD(machine, MACHINE, ENGINES);
        config->phases = FIELD(machine, MACHINE, PHASES);
        config->data_bits = FIELD(memory, CONFIG_MEMORY, DATA_BITS);
        config->slots = FIELD(memory, CONFIG_MEMORY, SLOTS);
    }
    return GL_OK;
}

uint32_t gl_table(const gl_device *device, char *text)
{
    uint32_t length, word = 0;

    for (length = 0; length < GL_TABLE_BYTES - 1; length++) {
        if (length % 4 == 0) {
            gl_write(device, REGISTER(TABLE_PLACE), length / 4);
            word = gl_read(device, REGISTER(TABLE_WORD));
        }
        text[length] = (char)(word >> 8 * (length % 4) & 0xFF);
        if (!text[length])
            return length;
    }
    text[length] = 0;
    return length;
}

/* Behind a value or a name of `at`. */
static const char *behind(const char *at, int name)
{
    while (*at && *at != ',' && *at != ';' && !(name && (*at == '=' || *at == '>')))
        at++;
    return at;
}

/* What follows a parameter's name of `length` letters: = or >=, and its value; NULL if there is none of this name. */
static const char *after_name(const char *table, const char *name, uint32_t length)
{
    const char *at = table;
    uint32_t i;

    for (; *at && *at != ';'; at += *at == ',') {
        for (i = 0; i < length && at[i] == name[i]; i++)
            ;
        if (i == length && (at[i] == '=' || at[i] == '>'))
            return at + i;
        at = behind(at, 0);
    }
    return NULL;
}

static uint32_t value_of(const char *at)
{
    uint32_t value = 0;

    for (at += *at == '>', at++; *at >= '0' && *at <= '9'; at++)
        value = 10 * value + (uint32_t)(*at - '0');
    return value;
}

uint32_t gl_parameter(const char *table, const char *name, uint32_t otherwise)
{
    uint32_t length = 0;
    const char *found;

    while (name[length])
        length++;
    found = after_name(table, name, length);
    return found ? value_of(found) : otherwise;
}

static uint32_t put(char *to, uint32_t at, const char *from, const char *end)
{
    for (; from != end && *from && at < GL_UNLIKE_BYTES - 1; from++)
        to[at++] = *from;
    to[at] = 0;
    return at;
}

/* A parameter's name and value, or that it is as usual. */
static uint32_t put_value(char *to, uint32_t at, const char *name, const char *found)
{
    at = put(to, at, name, behind(name, 1));
    return found ? put(to, put(to, at, "=", NULL), found + 1 + (*found == '>'), behind(found, 0))
                 : put(to, at, " is as usual", NULL);
}

/* How a parameter differs; `name` is where either side names it. */
static uint32_t put_unlike(char *why, const char *name, const char *there, const char *needs)
{
    uint32_t at = put(why, put_value(why, 0, name, there), ", must be ", NULL);

    if (!needs)
        return put(why, at, "as usual", NULL);
    at = put(why, at, *needs == '>' ? "at least " : "", NULL);
    at = put(why, at, needs + 1 + (*needs == '>'), behind(needs, 0));
    return put(why, put_value(why, put(why, at, " (--set ", NULL), name, needs), ")", NULL);
}

uint32_t gl_unlike(const char *table, const char *needs, char *why)
{
    const char *at, *there, *found;
    int side;

    for (side = 0; side < 2; side++)
        for (at = side ? table : needs; *at && *at != ';'; at += *at == ',') {
            there = after_name(table, at, (uint32_t)(behind(at, 1) - at));
            found = after_name(needs, at, (uint32_t)(behind(at, 1) - at));
            if (!there || !found || (*found == '>' ? value_of(there) < value_of(found) : value_of(there) != value_of(found)))
                return put_unlike(why, at, there, found);
            at = behind(at, 0);
        }
    for (at = table; *at && *at != ';'; at++)
        ;
    for (found = needs; *found && *found != ';'; found++)
        ;
    for (; *at && *at == *found; at++)
        found++;
    return *at == *found ? 0 : put(why, 0, "other engines or ports", NULL);
}

void gl_phase_name(const char *table, uint32_t phase, char *name)
{
    static const char *const own[] = {"wait", "load", "store"};
    uint32_t length = 0, rows = 0, colons = 0, seen = sizeof own / sizeof *own;
    const char *at = table;

    if (phase < seen) {
        at = own[phase];
    } else {
        /* Behind the parameters and the loop, each engine has a row: name:phase,phase:ports:ports. */
        for (; *at; at++) {
            if (*at == ';') {
                rows++;
                colons = 0;
            }
            colons += *at == ':';
            if (rows >= 2 && colons == 1 && (*at == ':' || *at == ',') && seen++ == phase) {
                at++;
                break;
            }
        }
    }
    while (*at && *at != ',' && *at != ':' && *at != ';' && length < GL_NAME_BYTES - 1)
        name[length++] = *at++;
    name[length] = 0;
}

int gl_set_window(const gl_device *device, uint64_t base, uint32_t size)
{
    if (base % 4096 || size == 0)
        return GL_ARGUMENT;
    if (occupied(device))
        return GL_BUSY;
    gl_write(device, REGISTER(WINDOW_BASE_LO), (uint32_t)base);
    gl_write(device, REGISTER(WINDOW_BASE_HI), (uint32_t)(base >> 32));
    gl_write(device, REGISTER(WINDOW_SIZE), size);
    return GL_OK;
}

int gl_set_watchdog(const gl_device *device, uint32_t cycles)
{
    if (occupied(device))
        return GL_BUSY;
    gl_write(device, REGISTER(WATCHDOG), cycles);
    return GL_OK;
}

int gl_set_base_id(const gl_device *device, uint32_t identity, uint32_t polls)
{
    if (occupied(device))
        return GL_BUSY;
    gl_write(device, REGISTER(BASE_ID), identity);
    return wait_idle(device, polls);
}

int gl_clear_cache(const gl_device *device, uint32_t polls)
{
    if (occupied(device))
        return GL_BUSY;
    gl_write(device, REGISTER(CACHE_CLEAR), GRADLOOM__CACHE_CLEAR__CLEAR_bm);
    return wait_idle(device, polls);
}

void gl_enable_interrupt(const gl_device *device, int enable)
{
    gl_write(device, REGISTER(IRQ_ENABLE),
        enable ? GRADLOOM__IRQ_ENABLE__DONE_bm | GRADLOOM__IRQ_ENABLE__ERROR_bm
                 | GRADLOOM__IRQ_ENABLE__REQUEST_bm : 0);
}

int gl_acknowledge(const gl_device *device)
{
    uint32_t pending = gl_read(device, REGISTER(IRQ_STATUS));

    gl_write(device, REGISTER(IRQ_STATUS), pending);
    return pending != 0;
}

static int ring(const gl_device *device, uint32_t program_offset, uint32_t commands, uint32_t busy_bit,
                uint32_t offset_register, uint32_t bell)
{
    if (program_offset % 32 || commands == 0 || commands > GRADLOOM__PROGRAM_COMMANDS__VALUE_bm)
        return GL_ARGUMENT;
    if (status(device, busy_bit))
        return GL_BUSY;
    gl_write(device, offset_register, program_offset);
    gl_write(device, offset_register + 4, commands);
    GL_BARRIER();
    gl_write(device, REGISTER(CONTROL), bell);
    return GL_OK;
}

static int poll(const gl_device *device, uint32_t busy_bit, uint32_t error_bit)
{
    uint32_t now = gl_read(device, REGISTER(STATUS));

    if (now & busy_bit)
        return GL_RUNNING;
    GL_BARRIER();
    return now & error_bit ? GL_FAILED : GL_OK;
}

static int wait(const gl_device *device, int (*poll_one)(const gl_device *), uint32_t polls)
{
    int now;

    do {
        now = poll_one(device);
        if (now != GL_RUNNING)
            return now;
    } while (polls-- > 1);
    return GL_TIMEOUT;
}

int gl_start(const gl_device *device, uint32_t program_offset, uint32_t commands)
{
    return ring(device, program_offset, commands, GRADLOOM__STATUS__BUSY_bm, REGISTER(PROGRAM_OFFSET),
                GRADLOOM__CONTROL__BELL_bm);
}

int gl_poll(const gl_device *device)
{
    return poll(device, GRADLOOM__STATUS__BUSY_bm, GRADLOOM__STATUS__ERROR_bm);
}

int gl_wait(const gl_device *device, uint32_t polls)
{
    return wait(device, gl_poll, polls);
}

int gl_request(const gl_device *device, uint32_t program_offset, uint32_t commands)
{
    int now;

    if (!status(device, GRADLOOM__STATUS__REQUESTS_bm))
        return GL_ABSENT;
    now = ring(device, program_offset, commands, GRADLOOM__STATUS__REQUEST_BUSY_bm, REGISTER(REQUEST_OFFSET),
               GRADLOOM__CONTROL__REQUEST_bm);
    /* A machine that is being stopped takes none. */
    return now == GL_OK && status(device, GRADLOOM__STATUS__REFUSED_bm) ? GL_BUSY : now;
}

int gl_poll_request(const gl_device *device)
{
    return poll(device, GRADLOOM__STATUS__REQUEST_BUSY_bm, GRADLOOM__STATUS__REQUEST_ERROR_bm);
}

int gl_wait_request(const gl_device *device, uint32_t polls)
{
    return wait(device, gl_poll_request, polls);
}

void gl_get_served(const gl_device *device, uint32_t *waited, uint32_t *cycles)
{
    *waited = gl_read(device, REGISTER(REQUEST_WAITED));
    *cycles = gl_read(device, REGISTER(REQUEST_CYCLES));
}

int gl_run(const gl_device *device, uint32_t program_offset, uint32_t commands, uint32_t polls)
{
    int now = gl_start(device, program_offset, commands);

    return now == GL_OK ? gl_wait(device, polls) : now;
}

int gl_reset(const gl_device *device, uint32_t polls)
{
    gl_write(device, REGISTER(CONTROL), GRADLOOM__CONTROL__RESET_bm);
    return wait_idle(device, polls);
}

void gl_get_error(const gl_device *device, gl_error *error)
{
    uint32_t command = gl_read(device, REGISTER(ERROR_COMMAND));

    error->code = gl_read(device, REGISTER(ERROR_CODE)) & GRADLOOM__ERROR_CODE__CODE_bm;
    error->command = FIELD(command, ERROR_COMMAND, INDEX);
    error->request = FIELD(command, ERROR_COMMAND, REQUEST);
    error->address = get_pair(device, REGISTER(ERROR_ADDRESS_LO));
}

void gl_get_counters(const gl_device *device, gl_counters *counters)
{
    uint32_t phase;

    counters->cycles = get_pair(device, REGISTER(CYCLES_LO));
    for (phase = 0; phase < GL_PHASES; phase++)
        counters->phase_cycles[phase] = gl_read(device, REGISTER(PHASE_CYCLES) + 4 * phase);
    counters->commands_done = gl_read(device, REGISTER(COMMANDS_DONE));
    counters->commands_dropped = gl_read(device, REGISTER(COMMANDS_DROPPED));
    counters->cache_hits = gl_read(device, REGISTER(CACHE_HITS));
    counters->cache_misses = gl_read(device, REGISTER(CACHE_MISSES));
    counters->read_beats = gl_read(device, REGISTER(READ_BEATS));
    counters->write_beats = gl_read(device, REGISTER(WRITE_BEATS));
}

void gl_get_health(const gl_device *device, gl_health *health)
{
    health->saturated = gl_read(device, REGISTER(SATURATED));
    health->underflowed = gl_read(device, REGISTER(UNDERFLOWED));
    health->gradient_norm = get_pair(device, REGISTER(GRADIENT_NORM_LO));
}

const char *gl_error_name(uint32_t code)
{
    switch (code) {
#define CASE(name, value, text) case value: return #name;
        GRADLOOM_ERRORS(CASE)
#undef CASE
    }
    return "UNKNOWN";
}

const char *gl_error_text(uint32_t code)
{
    switch (code) {
#define CASE(name, value, text) case value: return text;
        GRADLOOM_ERRORS(CASE)
#undef CASE
    }
    return "A code that this driver does not know.";
}
