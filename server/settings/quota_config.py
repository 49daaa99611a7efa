"""The settings of quotas of clients; the quotas themselves are kept in the coordination tree."""

from dataclasses import dataclass

from ottla.wire.settings import setting


@dataclass(frozen=True)
class QuotaConfig:
    """Over what time the use of clients is measured."""

    quota_window_num: int = setting(11, minimum=1, doc="Windows that the use of clients is measured over.")
    quota_window_size_seconds: int = setting(1, minimum=1, doc="The length of each of these windows.")
    controller_quota_window_num: int = setting(11, minimum=1, doc="Windows that changes of topics are measured over.")
    controller_quota_window_size_seconds: int = setting(
        1, minimum=1, doc="The length of each window that changes of topics are measured over."
    )
