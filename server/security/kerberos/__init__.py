"""GSSAPI: login by Kerberos.

exchange.py  one login, both sides
listener.py  keys and users of a listener
names.py     users by principals
library.py   the package gssapi; no other module imports it
"""
