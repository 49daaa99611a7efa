/* CRC-32C with the processor's own instruction, three lanes at a time.
 *
 * One crc32 instruction takes three cycles and a new one can start every cycle, so three independent checksums run side
 * by side over the three thirds of a block. They are joined by linearity: the checksum of A followed by B is the checksum
 * of A moved on over as many zero bytes as B is long, xor that of B. Moving on over a fixed number of zeros is a linear
 * map of 32 bits, kept as four tables of 256 entries.
 */
#ifndef CRC32C_H
#define CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
static inline uint32_t crc32c_word(uint32_t crc, uint64_t word) { return (uint32_t)_mm_crc32_u64(crc, word); }
static inline uint32_t crc32c_byte(uint32_t crc, uint8_t byte) { return _mm_crc32_u8(crc, byte); }
#elif defined(__aarch64__)
#include <arm_acle.h>
static inline uint32_t crc32c_word(uint32_t crc, uint64_t word) { return __crc32cd(crc, word); }
static inline uint32_t crc32c_byte(uint32_t crc, uint8_t byte) { return __crc32cb(crc, byte); }
#else
#error "no CRC-32C instruction is known for this processor"
#endif

enum { CRC32C_LONG_LANE = 4096, CRC32C_SHORT_LANE = 256 };

struct crc32c_shift {
    uint32_t table[4][256];
};

static struct crc32c_shift crc32c_over_long, crc32c_over_short;

static inline uint64_t crc32c_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

/* Moves a checksum on over as many zero bytes as the table was made for. */
static inline uint32_t crc32c_move(const struct crc32c_shift *shift, uint32_t crc) {
    return shift->table[0][crc & 255] ^ shift->table[1][crc >> 8 & 255] ^ shift->table[2][crc >> 16 & 255] ^
           shift->table[3][crc >> 24];
}

static inline void crc32c_make_shift(struct crc32c_shift *shift, size_t zeros) {
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        of_bit[bit] = 1u << bit;
        for (size_t i = 0; i < zeros; i++) of_bit[bit] = crc32c_byte(of_bit[bit], 0);
    }
    for (int place = 0; place < 4; place++)
        for (int value = 0; value < 256; value++) {
            uint32_t moved = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) moved ^= of_bit[place * 8 + bit];
            shift->table[place][value] = moved;
        }
}

/* Three lanes of `lane` bytes each, joined into one checksum. */
static inline uint32_t crc32c_three_lanes(uint32_t crc, const uint8_t *data, size_t lane, const struct crc32c_shift *shift) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < lane; i += 8) {
        crc = crc32c_word(crc, crc32c_load(data + i));
        second = crc32c_word(second, crc32c_load(data + lane + i));
        third = crc32c_word(third, crc32c_load(data + 2 * lane + i));
    }
    crc = crc32c_move(shift, crc) ^ second;
    return crc32c_move(shift, crc) ^ third;
}

static inline uint32_t crc32c(const uint8_t *data, size_t size) {
    uint32_t crc = 0xffffffff;
    for (; size >= 3 * CRC32C_LONG_LANE; data += 3 * CRC32C_LONG_LANE, size -= 3 * CRC32C_LONG_LANE)
        crc = crc32c_three_lanes(crc, data, CRC32C_LONG_LANE, &crc32c_over_long);
    for (; size >= 3 * CRC32C_SHORT_LANE; data += 3 * CRC32C_SHORT_LANE, size -= 3 * CRC32C_SHORT_LANE)
        crc = crc32c_three_lanes(crc, data, CRC32C_SHORT_LANE, &crc32c_over_short);
    for (; size >= 8; data += 8, size -= 8) crc = crc32c_word(crc, crc32c_load(data));
    for (; size > 0; data++, size--) crc = crc32c_byte(crc, *data);
    return ~crc;
}

/* Makes the tables; returns whether the known checksum of "123456789" comes out. */
static inline int crc32c_start(void) {
    crc32c_make_shift(&crc32c_over_long, CRC32C_LONG_LANE);
    crc32c_make_shift(&crc32c_over_short, CRC32C_SHORT_LANE);
    return crc32c((const uint8_t *)"123456789", 9) == 0xe3069283;
}

#endif
