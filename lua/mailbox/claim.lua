#!lua flags=allow-oom
-- purpose: gives the owner the next message of a mailbox, and the entity's state if asked
-- key fence (hash): the shard's fence
-- key mailbox (stream): the entity's mailbox
-- key live (hash): the shard's markers
-- key active (set): the shard's entities with something in their mailbox
-- key entity (hash): the entity's state
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg member (text): the entity, type:id
-- arg after (text): the last entry the owner has in hand; 0-0: none; empty: nothing older can be pending
-- arg runs_suspects (flag): a message that has died with its runner twice runs now
-- arg with_state (flag): send the state too
-- returns next entry id message class failures deaths pending version schema state: it is the owner's to handle
-- returns parked version schema state: the next message waits durably, and so does the mailbox
-- returns idle version schema state: nothing waits
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, under the same fence it claims the same
-- include: fence
-- include: claim
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local found = redis.call('EXISTS', mailbox) == 1 and claim_next(mailbox, live, member, after, number, runs_suspects)
local state = with_state and redis.call('HMGET', entity, 'v', 's', 'b') or {}
if not found then
  if after == '0-0' then
    redis.call('SREM', active, member)
  end
  found = { 'idle' }
elseif found[1] == 'parked' then
  redis.call('SREM', active, member)
end
found[#found + 1] = state[1] or '0'
found[#found + 1] = state[2] or '0'
found[#found + 1] = state[3] or ''
return found
