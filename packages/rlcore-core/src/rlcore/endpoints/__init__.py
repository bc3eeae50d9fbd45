"""Ask chat-completions endpoints: options, failures, and a client with retries and limits.

`rlcore.endpoints.client` needs the extra ``endpoints``. The other modules have no requirements of their own.
"""

from rlcore.endpoints.answers import Answer
from rlcore.endpoints.failures import EndpointFailure, FailureKind
from rlcore.endpoints.options import EndpointTable

__all__ = ["Answer", "EndpointFailure", "EndpointTable", "FailureKind"]
