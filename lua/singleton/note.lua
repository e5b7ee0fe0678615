#!lua flags=allow-oom
-- purpose: notes what the system keeps of a singleton: its runs, its last error, its leader's heartbeat
-- key fence (hash): the shard's fence
-- key singleton (hash): the metadata
-- key state (hash): the singleton's state, which lives as long as somebody serves it
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- arg runner (text): the leader
-- arg since (text): server milliseconds of the first leadership ever
-- arg last_run (text): server milliseconds; empty: none yet
-- arg run_count (text): executions that ended without an error
-- arg last_error (text): empty: none
-- arg failed_at (text): server milliseconds; empty: never
-- arg heartbeat (text): server milliseconds
-- arg keep (integer): milliseconds until all may go if nobody serves it; 0: never
-- returns ok: it is noted
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, the second time writes the same
-- include: fence
-- invariant: only the shard's present owner says how its singleton is
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
redis.call('HSET', singleton, 'fence', number, 'runner', runner, 'since', since, 'last_run', last_run,
  'run_count', run_count, 'last_error', last_error, 'failed_at', failed_at, 'heartbeat', heartbeat)
for _, key in ipairs({ singleton, state }) do
  if keep > 0 then
    redis.call('PEXPIRE', key, keep)
  else
    redis.call('PERSIST', key)
  end
end
return { 'ok' }
