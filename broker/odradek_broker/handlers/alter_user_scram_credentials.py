"""AlterUserScramCredentials (51), v0: sets and deletes SCRAM credentials of users.

Decided by the controller. The client sends the salted password, never the password: see
metadata/scram.py.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 51
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await to_controller(ctx, request, ctx.broker.controller.alter_user_scram_credentials)
    except KafkaError as error:
        users = {change.name for change in (*request.deletions, *request.upsertions)}
        return Struct(results=[refused(error, user=user) for user in sorted(users)])
