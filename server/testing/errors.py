"""The error of the lab."""


class LabError(Exception):
    """Error of a call to the lab that cannot be carried out; the text is one sentence that says what to do."""
