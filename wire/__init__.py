"""Kafka's protocol: bytes to typed messages and back. No I/O, no clock, no knowledge of brokers.

messages/              every request and response, declared once for all versions
schema.py              the language of these declarations
types.py               Kafka's types as constructs: the definition of the encoding
generator.py           writes fast Python from constructs: generator_decode.py and generator_encode.py are its halves
runtime.py             functions of generated code
codecs.py              generated codecs by class and version
headers.py             headers of requests and responses
errors.py              errors of the protocol; error_answers.py: an error as the response to any request
answers.py             forms in which a handler answers
one_batch.py           the ordinary produce request and its answer, without objects for their parts
records.py             record batches by their headers
record_walk.py         checks the records of a batch; compressed_walk.py: of a compressed one
record_decoding.py     records as objects; record_encoding.py: batches of them
control_batches.py     markers of transactions
legacy_records.py      message sets of magic 0 and 1
compression.py         codecs of batches; decompression.py: decompression within limits
checksum.py            CRC-32C and MurmurHash2
native.py              chooses between compiled functions and Python
buffers.py             memory for large requests
limits.py              limits of counts in foreign bytes
text.py                text decoded as by Java; UUIDs as Kafka writes them
foreign_json.py        JSON of strangers, within limits
settings.py            the language in which settings are declared
happenings.py          what a broker did out of the ordinary, with its causes
time_slice.py          slices of long work
"""
