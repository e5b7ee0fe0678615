-- The next entry: what is pending after `after` comes before what is new, otherwise a takeover breaks the order.
-- An empty `after` says that nothing older can be pending.
local function read_next(mailbox, after)
  while after ~= '' do
    local found = redis.call('XREADGROUP', 'GROUP', 'owner', 'owner', 'COUNT', 1, 'STREAMS', mailbox, after)
    local entry = found and found[1] and found[1][2][1]
    if not entry then
      break
    end
    if entry[2] and #entry[2] > 0 then
      return entry, '1'
    end
    redis.call('XACK', mailbox, 'owner', entry[1])
  end
  local found = redis.call('XREADGROUP', 'GROUP', 'owner', 'owner', 'COUNT', 1, 'STREAMS', mailbox, '>')
  return found and found[1] and found[1][2][1], '0'
end

-- Notes who has taken a message. One that was taken under another fence which did not give it back counts a
-- death; from the second on it is noted only when it is about to run, so that others' deaths do not count.
-- Nil: it is parked, and so is everything behind it.
local function note_claim(live, field, entry, number, runs_suspects)
  local marker = redis.call('HGET', live, field)
  local phase, class, check, fence, failures, deaths
  if marker and string.sub(marker, 1, 1) == 'p' then
    return nil
  end
  if marker then
    phase, class, check, fence, failures, deaths = string.match(marker, '^(%a) (%a) (%S+) %S+ (%S+) (%d+) (%d+)$')
  end
  if not phase then
    phase, class, check, fence, failures, deaths = 'w', 'g', '-', '0', '0', '0'
  end
  if phase == 't' and fence ~= number then
    deaths = tostring(tonumber(deaths) + 1)
  end
  local takes = runs_suspects or tonumber(deaths) < 2
  local head = (takes and 't ' or 'w ') .. class .. ' '
  redis.call('HSET', live, field, head .. check .. ' ' .. entry .. ' ' .. (takes and number or '0') .. ' ' .. failures .. ' ' .. deaths)
  return class, failures, deaths
end

local function claim_next(mailbox, live, member, after, number, runs_suspects)
  local entry, pending = read_next(mailbox, after)
  if not entry then
    return nil
  end
  local id, message = entry[2][2], entry[2][4]
  local class, failures, deaths = note_claim(live, member .. '\n' .. id, entry[1], number, runs_suspects)
  if not class then
    return { 'parked' }
  end
  return { 'next', entry[1], id, message, class, failures, deaths, pending }
end
