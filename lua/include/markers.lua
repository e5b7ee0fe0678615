-- What is remembered of a message: '<phase> <class> <check> <rest>'. In `live` while it waits (w), is taken (t),
-- parked (p), scheduled (s) or dead (d); then as finished (f) or withdrawn (x) in the bucket of its window, for two
-- windows. The rest of w, t and p is 'entry fence failures deaths', that of d and f the reply, that of s its place.
local function recall(live, done, field, now, window)
  local marker = redis.call('HGET', live, field)
  if marker then
    return marker
  end
  local bucket = math.floor(now / window)
  return redis.call('HGET', done[bucket % 3 + 1], field) or redis.call('HGET', done[(bucket + 2) % 3 + 1], field)
end

local function read_marker(marker)
  return string.match(marker, '^(%a) (%a) (%S+) (.*)$')
end

local expiring = {}
local function remember(done, field, marker, now, window)
  local bucket = math.floor(now / window)
  local key = done[bucket % 3 + 1]
  redis.call('HSET', key, field, marker)
  if expiring[key] then
    return
  end
  expiring[key] = true
  if redis.call('PTTL', key) < 0 then
    redis.call('PEXPIREAT', key, string.format('%.0f', (bucket + 2) * window))
    -- One long value makes the server index the hash: its compact form is searched from the start each time.
    redis.call('HSET', key, '', string.rep(' ', 65))
  end
end

-- Notes that a message was withdrawn: whoever waits for it must not put it again.
local function withdraw(live, done, field, kind, check, now, window)
  redis.call('HDEL', live, field)
  remember(done, field, 'x ' .. kind .. ' ' .. check .. ' ', now, window)
end

-- What a sender that repeats itself is told; nil if the message is new. One that was withdrawn stays so for whoever
-- repeats it, and its key is free for another call.
local function known_answer(marker, check, again)
  if not marker then
    return nil
  end
  local phase, _, known, rest = string.match(marker, '^(%a) (%a) (%S+) (.*)$')
  if phase == 'x' then
    return again and { 'withdrawn' } or nil
  end
  if known ~= check then
    return { 'conflict' }
  end
  if phase == 'f' or phase == 'd' then
    return { 'answered', rest }
  end
  return { 'duplicate' }
end
