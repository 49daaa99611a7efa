/*
 * One block of LZ4, decoded without a dictionary; part of _native.c.
 *
 * A block is a row of sequences: a token with two lengths of four bits (15: bytes follow, each up to 255, that are added), literals, and a
 * match: its distance in two bytes, and so many bytes, and four more, that came so far back. The last sequence has literals only.
 *
 * This says yes only where liblz4 and Java's decoder say yes, and gives the same bytes: their rules for the end of a block
 * (a match needs room for 12 more bytes where it begins and for 5 where it ends) are here, too. They take a distance of 0, and this does
 * not. liblz4's shortcut for short sequences lets a match end 3 bytes before the end of the output; this refuses it, as Java's decoder does.
 *
 * Safety: `in` never passes `end`, which is compared before each read; nothing is written outside of `out` and its capacity, and no
 * match begins before `out`. Copies are rounded up to 16 bytes only where there is room for that on both sides.
 */
#ifndef OTTLA_LZ4_BLOCK_H
#define OTTLA_LZ4_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    LZ4_MATCH_BYTES_MIN = 4,
    LZ4_LITERALS_AT_END = 5,
    LZ4_ROOM_FOR_MATCH = 12,
    LZ4_INPUT_BEHIND_LITERALS = 8, /* distance, token, literals at the end */
    LZ4_SHORT_INPUT = 32,          /* with so much input and room the lengths of a short sequence need no checks */
    LZ4_SHORT_ROOM = 64,
    LZ4_WRITTEN_BEHIND = 64,
};

/* Adds the bytes of a length to it; 0 where they end early. */
static int lz4_length(const uint8_t **in, const uint8_t *end, size_t *length)
{
    uint8_t byte;
    do {
        if (*in == end)
            return 0;
        byte = *(*in)++;
        *length += byte;
    } while (byte == 255);
    return 1;
}

/* `size` bytes from `distance` before `to`, of which up to 15 bytes more may be written if there is `room` for them. */
static void lz4_copy_match(uint8_t *to, size_t distance, size_t size, size_t room)
{
    const uint8_t *from = to - distance;
    uint8_t *stop = to + size;
    if (distance >= 16 && room >= size + 16) {
        do {
            memcpy(to, from, 16);
            to += 16;
            from += 16;
        } while (to < stop);
    } else if (distance >= 8 && room >= size + 16) {
        do {
            memcpy(to, from, 8);
            to += 8;
            from += 8;
        } while (to < stop);
    } else if (distance == 1) {
        memset(to, *from, size);
    } else {
        while (to < stop)
            *to++ = *from++;
    }
}

/* Moves `to` behind the bytes that the block becomes, up to `stop`; -1 where it is no block, or needs more room. Bytes up to
 * LZ4_WRITTEN_BEHIND behind `to` may have been written to as well. */
static int lz4_decode_block(const uint8_t *in, size_t size, uint8_t **written_to, uint8_t *stop)
{
    const uint8_t *end = in + size;
    uint8_t *const out = *written_to, *to = out;
    while (in < end) {
        unsigned token = *in++;
        size_t literals = token >> 4, match = token & 15, distance;
        *written_to = to;
        if (literals < 15 && end - in >= LZ4_SHORT_INPUT && stop - to >= LZ4_SHORT_ROOM) {
            memcpy(to, in, 16);
            to += literals;
            in += literals;
            distance = in[0] | (size_t)in[1] << 8;
            in += 2;
            if (match < 15 && distance >= 8 && distance <= (size_t)(to - out)) {
                const uint8_t *from = to - distance;
                memcpy(to, from, 8);
                memcpy(to + 8, from + 8, 8);
                memcpy(to + 16, from + 16, 2);
                to += match + LZ4_MATCH_BYTES_MIN;
                continue;
            }
        } else {
            if (literals == 15 && !lz4_length(&in, end, &literals))
                return -1;
            size_t left = (size_t)(end - in), room = (size_t)(stop - to);
            if (literals > left || literals > room)
                return -1;
            int is_last = literals + LZ4_INPUT_BEHIND_LITERALS > left || literals + LZ4_ROOM_FOR_MATCH > room;
            if (is_last && literals != left)
                return -1;
            memcpy(to, in, literals);
            to += literals;
            in += literals;
            *written_to = to;
            if (is_last)
                return 0;
            distance = in[0] | (size_t)in[1] << 8;
            in += 2;
        }
        if (match == 15 && (!lz4_length(&in, end, &match) || end - in < LZ4_LITERALS_AT_END))
            return -1;
        match += LZ4_MATCH_BYTES_MIN;
        size_t room = (size_t)(stop - to);
        if (distance == 0 || distance > (size_t)(to - out) || match + LZ4_LITERALS_AT_END > room)
            return -1;
        lz4_copy_match(to, distance, match, room);
        to += match;
    }
    *written_to = to;
    return -1;
}

#endif
