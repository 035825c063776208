"""Web push: notifications on phones and in browsers that asked for them, also while no page is open."""

from hub_live.push.operations import push
from hub_live.push.push import Notice, Push, PushText, Words, open_push, plain

__all__ = ["Notice", "Push", "PushText", "Words", "open_push", "plain", "push"]
