"""OAUTHBEARER: login by JSON Web Tokens.

bearer.py          one login, both sides
tokens.py          compact form of tokens; signed_tokens.py: validation; signatures.py: by joserfc
key_sets.py        sets of keys (JWKS); key_sources.py: files and servers that they come from
login_tokens.py    tokens of this broker; token_requests.py: requests to issuers
fetching.py        client for HTTP
"""
