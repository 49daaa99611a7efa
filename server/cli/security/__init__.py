"""Commands about rights, users and quotas.

acls.py          `ottla acls`: rules of the authorizer; acl_requests.py: its requests
users.py         `ottla users`: users of SCRAM
quotas.py        `ottla quotas`: quotas of users, client ids and addresses
tokens.py        `ottla tokens`: delegation tokens
certificates.py  `ottla certificates`: makes certificates
"""
