"""Authentication, authorization and quotas.

authorizer.py         may a principal do this: Kafka's rules
acls.py               ACLs as clients name them; acl_znodes.py: as the tree has them
tls_listener.py       TLS of listeners; tls_contexts.py: contexts of OpenSSL
key_stores.py         keystores and truststores; certificates.py: fields of certificates
principal_mapping.py  users by names in certificates
sasl_listener.py      mechanisms of a listener
sasl_exchange.py      SASL login of a client; peer_login.py: of this broker at another
mechanism.py          mechanisms of SASL: both sides
scram.py              SCRAM; scram_credentials.py: its credentials; scram_users.py: its users
tokens.py             delegation tokens
kerberos/             GSSAPI
oauth/                OAUTHBEARER
quotas/               quotas of clients
"""
