"""Makes docs/profiles.md: what a broker of the lab can behave as, the differences, and their sources.

python -m compat_tests.docs.profiles
"""

from compat_tests.docs.pages import DOCS

from ottla.server.dispatch.apis import APIS
from ottla.server.testing.profiles.profiles import PROFILES, Profile

PAGE = DOCS / "profiles.md"
HEAD = """\
# Profiles: behave as another Kafka

This page is made by `python -m compat_tests.docs.profiles` from what the profiles declare; a test fails when it is not up to date.

A broker inside a test can behave as an older release of Kafka, or as a hosted service by what its documentation says. So an
application meets in its tests what it will meet there: requests that are missing, settings that are refused, other defaults.

<!-- tested by: compat_tests/clients/test_profiles.py, server/testing/profiles/tests/test_profiles.py -->

    with Kafka(profile="kafka-2.8") as kafka: ...          in Python
    @pytest.mark.ottla_profile("msk-serverless")           a test, a class or a module; ottla_profile = NAME in pytest's ini file: all
    ottla test --profile kafka-0.10 -- npm test            any other language

What a profile does:

- ApiVersions answers list the profile's versions. A request in another version ends the connection, as in Kafka.
- The profile's settings replace Kafka 4.4's defaults. A test's own settings come before them, and so does
  `group.initial.rebalance.delay.ms=0`, which every Kafka inside a test has.
- Topics and settings that a service does not allow are refused with POLICY_VIOLATION, as by a Kafka broker with a policy for topics,
  unless the service documents another error.
- If a service demands three replicas, a request for any other number is refused. A test with one broker still gets one replica.
- The brokers of a cluster use a listener of their own, with all versions.
- Snapshots and forks keep the profile.

`ottla.testing.profile_of("kafka-2.8")` returns a profile with its settings, its restrictions and its differences. A difference marked
*not imitated* is documented, and the broker does not behave so. Sources were read in November 2026.
"""


def page() -> str:
    rows = [
        f"| [`{name}`](#{_anchor(each)}) | {each.title} | {_count(each)} | {len(each.settings)} |\n"
        for name, each in PROFILES.items()
    ]
    head = "\n| profile | behaves as | requests | settings |\n| - | - | - | - |\n"
    return "".join([HEAD, head, *rows, *map(_section, PROFILES.values())])


def _count(profile: Profile) -> int:
    """Requests of clients that are served."""
    versions = profile.restrictions.versions or {}
    return sum(1 for api in APIS if not api.between_brokers and api.api_key in versions)


def _anchor(profile: Profile) -> str:
    return "".join(each for each in profile.name if each.isalnum() or each == "-")


def _section(profile: Profile) -> str:
    differences = [
        f"| {each.text}{'' if each.is_imitated else ' (*not imitated*)'} | [{each.source.title}]({each.source.url}) |\n"
        for each in profile.differences
    ]
    settings = ", ".join(f"`{name}={value}`" for name, value in profile.settings.items())
    told = f"\nSettings: {settings}\n" if settings else ""
    head = "| difference from Kafka 4.4 | source |\n| - | - |\n"
    return f"\n## {profile.name}\n\n{profile.title}.\n\n{head}{''.join(differences)}{told}"


if __name__ == "__main__":
    PAGE.write_text(page())
