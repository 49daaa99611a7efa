/*
 * The walk over records that a codec has stored as they are, or that lz4 has compressed; part of _native.c.
 *
 * decompression.py and compressed_walk.py are its twins. This knows of nothing unusual, and says yes or nothing.
 */
#ifndef OTTLA_STORED_RECORDS_H
#define OTTLA_STORED_RECORDS_H

#include "_lz4_block.h"

/* Below this a walk is quickly over, however short the records are. */
#define UNLOCK_STORED_BYTES (16 * 1024)
#define GZIP_BLOCKS_MAX 500 /* the caller looks at each once more */

enum { GZIP = 1, SNAPPY = 2, LZ4 = 3, ZSTD = 4 }; /* as in the attributes of a batch */

/* The records of all blocks. One that is cut off by the end of its block is put together at the front of `memory`, to which
 * compressed blocks are decoded as well. */
typedef struct {
    uint8_t *memory;
    size_t capacity;
    size_t written;     /* up to where */
    size_t left;        /* bytes at the front that are not walked over */
    size_t size, limit; /* how many have come, and may come */
    int32_t index, count;
    Summary summary;
} Records;

/* All below return 0 or -1. */

static int keep(Records *to, const uint8_t *data, size_t size)
{
    if (size > to->capacity - to->left)
        return -1;
    memcpy(to->memory + to->left, data, size);
    to->left += size;
    if (to->left > to->written)
        to->written = to->left;
    return 0;
}

/* How many bytes the record at the front lacks, or at least so many. */
static size_t lacking(const Records *of)
{
    Cursor record = {of->memory, of->memory + of->left};
    int32_t length;
    if (read_varint(&record, &length) < 0)
        return 1;
    size_t whole = (size_t)(record.next - of->memory) + (length > 0 ? (size_t)length : 0);
    return whole > of->left ? whole - of->left : 1;
}

/* A block. It is walked over where it is, but for records that do not end or begin there. */
static int put(Records *to, const uint8_t *data, size_t size)
{
    to->size += size;
    if (to->size > to->limit)
        return -1;
    while (to->left && size) {
        size_t part = lacking(to);
        if (part > size)
            part = size;
        if (keep(to, data, part) < 0)
            return -1;
        data += part;
        size -= part;
        Cursor record = {to->memory, to->memory + to->left};
        if (walk_piece(&record, &to->index, to->count, &to->summary) < 0)
            return -1;
        /* All of it, or nothing: no more than the record lacked was added. */
        if (record.next == record.end)
            to->left = 0;
        else if (record.next != to->memory)
            return -1;
    }
    Cursor area = {data, data + size};
    if (walk_piece(&area, &to->index, to->count, &to->summary) < 0)
        return -1;
    /* Whatever comes now is behind the last record. */
    if (area.next != area.end && to->index == to->count)
        return -1;
    return keep(to, area.next, (size_t)(area.end - area.next));
}

/* Compressed blocks are decoded behind what is left of those before, and walked over there. */
static int put_lz4(Records *to, const uint8_t *data, size_t size, size_t block_max)
{
    if (block_max > to->capacity - to->left)
        return -1;
    uint8_t *begin = to->memory + to->left, *stop = begin + block_max, *decoded_to = begin;
    int result = lz4_decode_block(data, size, &decoded_to, stop);
    size_t written = (size_t)((stop - decoded_to > LZ4_WRITTEN_BEHIND ? decoded_to + LZ4_WRITTEN_BEHIND : stop) - to->memory);
    if (written > to->written)
        to->written = written;
    to->size += (size_t)(decoded_to - begin);
    to->left += (size_t)(decoded_to - begin);
    if (result < 0 || to->size > to->limit)
        return -1;
    Cursor area = {to->memory, to->memory + to->left};
    if (walk_piece(&area, &to->index, to->count, &to->summary) < 0)
        return -1;
    to->left = (size_t)(area.end - area.next);
    if (to->left && to->index == to->count)
        return -1;
    if (area.next != to->memory)
        memmove(to->memory, area.next, to->left);
    return 0;
}

static uint32_t little_endian(const uint8_t *in, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)in[i] << 8 * i;
    return value;
}

static uint64_t little_endian_64(const uint8_t *in)
{
    return little_endian(in, 4) | (uint64_t)little_endian(in + 4, 4) << 32;
}

static uint32_t rotated(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

/* The second byte of XXH32 with seed 0, for fewer than 16 bytes. */
static uint8_t lz4_header_checksum(const uint8_t *data, int size)
{
    const uint32_t prime_1 = 2654435761u, prime_2 = 2246822519u, prime_3 = 3266489917u, prime_4 = 668265263u,
                   prime_5 = 374761393u;
    uint32_t digest = prime_5 + (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4)
        digest = rotated(digest + little_endian(data, 4) * prime_3, 17) * prime_4;
    for (; size > 0; size--, data++)
        digest = rotated(digest + *data * prime_5, 11) * prime_1;
    digest = (digest ^ digest >> 15) * prime_2;
    digest = (digest ^ digest >> 13) * prime_3;
    return (uint8_t)((digest ^ digest >> 16) >> 8);
}

/* One frame of stored blocks, without checksums but that of its header. What follows it is not looked at. */
static int lz4_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    if (end - in < 15 || little_endian(in, 4) != 0x184d2204)
        return -1;
    int flags = in[4], sizes = in[5], has_size = flags & 0x08, described = has_size ? 10 : 2;
    /* Version 1, independent blocks, nothing else but the size of the contents. */
    if ((flags & ~0x08) != 0x60 || (sizes & 0x8f) != 0 || sizes >> 4 < 4)
        return -1;
    uint64_t told_size = has_size ? little_endian_64(in + 6) : 0;
    size_t block_max = (size_t)1 << (8 + 2 * (sizes >> 4));
    if (in[4 + described] != lz4_header_checksum(in + 4, described))
        return -1;
    in += 4 + described + 1;
    while (end - in >= 4) {
        uint32_t head = little_endian(in, 4), size = head & 0x7fffffff;
        in += 4;
        if (head == 0)
            return has_size && told_size != to->size ? -1 : 0;
        /* An empty one is the end to Java's reader. */
        if (size == 0 || size > block_max || size > (size_t)(end - in))
            return -1;
        if ((head >> 31 ? put(to, in, size) : put_lz4(to, in, size, block_max)) < 0)
            return -1;
        in += size;
    }
    return -1;
}

/* One frame of stored blocks, without a checksum. */
static int zstd_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    if (end - in < 15 || little_endian(in, 4) != 0xfd2fb528)
        return -1;
    int descriptor = in[4], is_single = descriptor >> 5 & 1;
    in += 5;
    /* A reserved bit, a checksum, a dictionary. */
    if (descriptor & 0x0f)
        return -1;
    uint64_t window = UINT64_MAX, told_size = UINT64_MAX;
    if (!is_single) {
        int exponent = *in >> 3, mantissa = *in & 7;
        /* Windows of 128 MiB and more need a decoder that is told to allow them. */
        if (exponent >= 17)
            return -1;
        window = ((uint64_t)1 << (10 + exponent)) / 8 * (uint64_t)(8 + mantissa);
        in++;
    }
    switch (descriptor >> 6) {
    case 0:
        if (is_single)
            told_size = *in++;
        break;
    case 1:
        told_size = little_endian(in, 2) + 256u;
        in += 2;
        break;
    case 2:
        told_size = little_endian(in, 4);
        in += 4;
        break;
    default:
        told_size = little_endian_64(in);
        in += 8;
    }
    if (is_single)
        window = told_size;
    size_t block_max = window < 128 * 1024 ? (size_t)window : 128 * 1024;
    for (;;) {
        if (end - in < 3)
            return -1;
        uint32_t head = little_endian(in, 3);
        size_t size = head >> 3;
        in += 3;
        if ((head >> 1 & 3) != 0 || size > block_max || size > (size_t)(end - in) || put(to, in, size) < 0)
            return -1;
        in += size;
        if (head & 1)
            return in != end || (told_size != UINT64_MAX && told_size != to->size) ? -1 : 0;
    }
}

/* One gzip member of a few stored blocks and nothing behind it. Its checksum is the caller's. */
static int gzip_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    if (end - in < 10 || little_endian(in, 4) != 0x00088b1f) /* deflate, no extra fields */
        return -1;
    in += 10;
    for (int blocks = 0; blocks < GZIP_BLOCKS_MAX && end - in >= 5 && *in <= 1; blocks++) {
        int is_last = *in;
        uint32_t size = little_endian(in + 1, 2);
        if ((size ^ little_endian(in + 3, 2)) != 0xffff)
            return -1;
        in += 5;
        if (size > (size_t)(end - in) || put(to, in, size) < 0)
            return -1;
        in += size;
        if (is_last)
            return end - in == 8 && little_endian(in + 4, 4) == to->size ? 0 : -1;
    }
    return -1;
}

/* A block that is one literal: its length as a varint, a tag with the same length less one, the bytes. */
static int snappy_literal(Records *to, const uint8_t *in, const uint8_t *end)
{
    uint32_t told_size = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte & 0x80; shift += 7) {
        if (in == end || shift > 21)
            return -1;
        byte = *in++;
        told_size |= (uint32_t)(byte & 0x7f) << shift;
    }
    if (in == end || (*in & 3) != 0)
        return -1;
    uint32_t less_one = *in++ >> 2;
    if (less_one >= 60) { /* so many bytes more hold it */
        int bytes = (int)less_one - 59;
        /* The library reads four bytes at once, and refuses a shorter rest; whoever compacts the log reads it by the library. */
        if (end - in < 4)
            return -1;
        less_one = little_endian(in, bytes);
        in += bytes;
    }
    if (told_size == 0 || less_one != told_size - 1 || (size_t)(end - in) != told_size)
        return -1;
    return put(to, in, told_size);
}

/* One xerial stream of such blocks, or one such block alone. */
static int snappy_records(Records *to, const uint8_t *in, const uint8_t *end)
{
    static const uint8_t header[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    if (end - in < 16 || memcmp(in, header, sizeof header) != 0)
        return snappy_literal(to, in, end);
    for (in += sizeof header; in != end;) {
        if (end - in < 4)
            return -1;
        uint32_t size = (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
        in += 4;
        if (size > (size_t)(end - in) || snappy_literal(to, in, in + size) < 0)
            return -1;
        in += size;
    }
    return 0;
}

static int stored_walk(Records *to, int codec, const uint8_t *in, const uint8_t *end)
{
    /* What is hardly longer than its records cannot hold very many empty blocks, which would take time and count for nothing. */
    if ((size_t)(end - in) > to->limit + to->limit / 8 + 1024)
        return -1;
    int result = codec == GZIP     ? gzip_records(to, in, end)
                 : codec == SNAPPY ? snappy_records(to, in, end)
                 : codec == LZ4    ? lz4_records(to, in, end)
                 : codec == ZSTD   ? zstd_records(to, in, end)
                                   : -1;
    return result == 0 && to->index == to->count && to->left == 0 ? 0 : -1;
}

#endif
