"""Settings: declared, read, in force, changed. And the log.

server_config.py        declarations: the server itself
security_config.py      declarations: TLS, authorizer, tokens; sasl_config.py: SASL
coordination_config.py  declarations: the coordination tree
client_metrics.py       declarations: subscriptions to client metrics
without_effect.py       Kafka's settings that have no effect here
broker_config.py        all settings of a broker, and rules for several of them
listeners.py            listeners by the settings; endpoint.py: their addresses
sasl_rules.py           evaluation of SASL settings
token_rules.py          evaluation of OAUTHBEARER's, for a listener; login_rules.py: for a client
jaas.py                 JAAS lines
passwords.py            passwords in the coordination tree
properties.py           Java's .properties format
quantities.py           durations and sizes as people write them
environment.py          settings from environment variables
environment_logins.py   logins from environment variables, and JAAS files
worker_places.py        settings that differ between workers
repository.py           settings in force, and those who subscribed to changes
changes.py              judges changes at run time
reference.py            reference of all settings
loggers.py              levels and lines of the log
"""
