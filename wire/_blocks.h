/*
 * The blocks of LZ4 and of snappy, decompressed in C. Included by _native.c.
 *
 * Both know a block with anything unusual about it for bad: whoever calls them asks the libraries then, which have the last
 * word. So a block that is good here is good for these libraries, but not the other way round.
 *
 * Safety: nothing is read outside of [in, in_end), and nothing that is written lies behind the room by more than SLACK bytes,
 * which the caller provides. Each byte of input is read once and compared with what is left before it is used. Formats:
 * lz4_Block_format.md of LZ4, format_description.txt of snappy.
 */
#ifndef OTTLA_BLOCKS_H
#define OTTLA_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Copies go on in steps of up to 16 bytes, so the last one may end behind the room, but not so far. */
#define SLACK 32

/* Of LZ4: a block ends with that many literals, and its last match begins so far before its end. */
#define LAST_LITERALS 5
#define MATCH_LIMIT 12

static inline void copy_8(uint8_t *to, const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, 8);
    memcpy(to, &word, 8);
}

/* All are loaded before the first is stored, so the two may overlap. */
static inline void copy_16(uint8_t *to, const uint8_t *from)
{
    uint64_t words[2];
    memcpy(words, from, 16);
    memcpy(to, words, 16);
}

static inline void copy_48(uint8_t *to, const uint8_t *from)
{
    copy_16(to, from);
    copy_16(to + 16, from + 16);
    copy_16(to + 32, from + 32);
}

/* Repeats what was written `offset` bytes before. Writes up to 15 bytes more than asked. */
static inline void copy_match(uint8_t *to, size_t offset, size_t length)
{
    const uint8_t *from = to - offset;
    const uint8_t *end = to + length;
    if (offset < 8) {
        /* The first eight bytes one by one. From then on a multiple of the offset is far enough away for words. */
        static const uint8_t far_enough[8] = {0, 8, 8, 9, 8, 10, 12, 14};
        for (int i = 0; i < 8; i++)
            to[i] = from[i];
        to += 8;
        from = to - far_enough[offset];
    }
    if (to - from >= 16)
        for (; to < end; to += 16, from += 16)
            copy_16(to, from);
    else
        for (; to < end; to += 8, from += 8)
            copy_8(to, from);
}

static inline uint32_t little_endian(const uint8_t *in, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)in[i] << 8 * i;
    return value;
}

/* Adds the bytes of a length that goes on behind its token. NULL: there are not so many. */
static inline const uint8_t *lz4_length(const uint8_t *in, const uint8_t *in_end, size_t *length)
{
    uint8_t byte;
    do {
        if (in == in_end)
            return NULL;
        byte = *in++;
        *length += byte;
    } while (byte == 255);
    return in;
}

/* How many bytes a block becomes; -1: it is bad, or has more than there is room for. */
static ptrdiff_t lz4_block(const uint8_t *in, const uint8_t *in_end, uint8_t *out, size_t room)
{
    uint8_t *to = out, *const end = out + room;
    while (in < in_end) {
        unsigned token = *in++;
        size_t length = token >> 4;
        /* Few literals, far from both ends: nearly all of them. */
        if (length < 15 && in_end - in >= 32 && end - to >= 32) {
            copy_16(to, in);
        } else {
            if (length == 15 && (in = lz4_length(in, in_end, &length)) == NULL)
                return -1;
            if (length > (size_t)(in_end - in) || length > (size_t)(end - to))
                return -1;
            memcpy(to, in, length);
            /* The last sequence has no match. */
            if (length == (size_t)(in_end - in))
                return to + length - out;
            if ((size_t)(in_end - in) - length < 2 + 1 + LAST_LITERALS || (size_t)(end - to) - length < MATCH_LIMIT)
                return -1;
        }
        to += length;
        in += length;
        size_t offset = little_endian(in, 2);
        in += 2;
        if (offset == 0 || offset > (size_t)(to - out))
            return -1;
        length = token & 15;
        if (length < 15 && offset >= 8 && end - to >= 32) {
            const uint8_t *from = to - offset;
            copy_8(to, from);
            copy_8(to + 8, from + 8);
            copy_8(to + 16, from + 16);
            to += length + 4;
            continue;
        }
        if (length == 15 && ((in = lz4_length(in, in_end, &length)) == NULL || in_end - in < LAST_LITERALS))
            return -1;
        length += 4;
        if (length + LAST_LITERALS > (size_t)(end - to))
            return -1;
        copy_match(to, offset, length);
        to += length;
    }
    return -1;
}

/* The length that stands before a snappy block. Moves behind it; -1 where there is none of at most four bytes. */
static inline int32_t snappy_length(const uint8_t **in, const uint8_t *in_end)
{
    int32_t length = 0;
    for (int shift = 0; shift < 28 && *in < in_end; shift += 7) {
        uint8_t byte = *(*in)++;
        length |= (int32_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return length;
    }
    return -1;
}

static inline void copy_64(uint8_t *to, const uint8_t *from)
{
    for (int i = 0; i < 64; i += 16)
        copy_16(to + i, from + i);
}

/* What follows the length; 0, or -1: it is bad, or does not become `size` bytes. */
static int snappy_block(const uint8_t *in, const uint8_t *in_end, uint8_t *out, size_t size)
{
    /* By kind of copy, so that the processor has nothing to guess: a wrong guess costs more than the copy. */
    static const uint8_t offset_bytes[4] = {0, 1, 2, 4}, length_mask[4] = {0, 7, 63, 63}, shortest[4] = {0, 4, 1, 1};
    static const uint32_t offset_mask[4] = {0, 0xff, 0xffff, 0xffffffff}, high_mask[4] = {0, 0xe0, 0, 0};
    uint8_t *to = out, *const end = out + size;
    while (in < in_end) {
        /* Nothing that is 64 bytes long can pass an end then. */
        int is_far = in_end - in > 64 && end - to >= 64;
        unsigned tag = *in++, kind = tag & 3;
        if (kind == 0) {
            uint64_t length = (tag >> 2) + 1;
            if (is_far && length <= 60) {
                copy_16(to, in);
                if (length > 16)
                    copy_48(to + 16, in + 16);
            } else {
                if (length > 60) {
                    int more = (int)length - 60;
                    if (in_end - in < more)
                        return -1;
                    length = (uint64_t)little_endian(in, more) + 1;
                    in += more;
                }
                if (length > (uint64_t)(in_end - in) || length > (uint64_t)(end - to))
                    return -1;
                memcpy(to, in, (size_t)length);
            }
            to += length;
            in += length;
            continue;
        }
        int bytes = offset_bytes[kind];
        if (!is_far && in_end - in < bytes)
            return -1;
        size_t length = (tag >> 2 & length_mask[kind]) + shortest[kind];
        size_t offset = (is_far ? little_endian(in, 4) & offset_mask[kind] : little_endian(in, bytes)) | (tag & high_mask[kind]) << 3;
        in += bytes;
        if (offset == 0 || offset > (size_t)(to - out))
            return -1;
        if (is_far && offset >= 16) {
            copy_16(to, to - offset);
            if (length > 16)
                copy_48(to + 16, to + 16 - offset);
        } else {
            if (length > (size_t)(end - to))
                return -1;
            copy_match(to, offset, length);
        }
        to += length;
    }
    return to == end ? 0 : -1;
}

#endif
