#!lua flags=allow-oom
-- purpose: gives back messages that were taken and not handled, so that no death is counted
-- key fence (hash): the shard's fence
-- key live (hash): the shard's markers
-- arg number (text): the fence the owner holds
-- arg nonce (text): the owner's nonce
-- each arg field (text): type:id, a line feed, the message's id
-- returns ok: one answer for each message
-- each returns released: it waits again
-- each refuses absent: it was not taken under this fence
-- refuses fenced: another fence is installed
-- refuses unfenced: this Redis has forgotten the shard's fence
-- repeat: safe, the second time finds it waiting
-- include: fence
local word = fence_word(fence, number, nonce)
if word ~= 'ok' then
  return { word }
end
local answers = {}
for place, taken in ipairs(each) do
  local head, entry, holder, counts = string.match(redis.call('HGET', live, taken.field) or '', '^t (%a %S+) (%S+) (%S+) (%d+ %d+)$')
  if holder == number then
    redis.call('HSET', live, taken.field, 'w ' .. head .. ' ' .. entry .. ' 0 ' .. counts)
    answers[place] = { 'released' }
  else
    answers[place] = { 'absent' }
  end
end
return { 'ok', answers }
