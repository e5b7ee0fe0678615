-- Bytes are counted only for messages that could fill a mailbox before their number does.
local function weigh(live, member, size)
  if size <= -4096 or size >= 4096 then
    local field = member .. '\n'
    if redis.call('HINCRBY', live, field, size) <= 0 then
      redis.call('HDEL', live, field)
    end
  end
end

-- Puts a message in; 'full' if it has no room. Nothing is ever trimmed.
local function put(mailbox, live, active, member, id, message, class, check, capacity, bytes_limit)
  local waiting = redis.call('XLEN', mailbox)
  if waiting >= capacity then
    return nil
  end
  if #message >= 4096 then
    if tonumber(redis.call('HGET', live, member .. '\n') or '0') + #message > bytes_limit then
      return nil
    end
    weigh(live, member, #message)
  end
  if waiting == 0 then
    if redis.call('PERSIST', mailbox) == 0 and redis.call('EXISTS', mailbox) == 0 then
      redis.call('XGROUP', 'CREATE', mailbox, 'owner', '0', 'MKSTREAM')
    end
    redis.call('SADD', active, member)
  end
  local entry = redis.call('XADD', mailbox, '*', 'i', id, 'm', message)
  redis.call('HSET', live, member .. '\n' .. id, 'w ' .. class .. ' ' .. check .. ' ' .. entry .. ' 0 0 0')
  return entry, waiting == 0
end

-- An empty mailbox is removed at passivation; after a minute, if its owner does not live to do that.
local function emptied(mailbox, active, member)
  redis.call('SREM', active, member)
  redis.call('PEXPIRE', mailbox, 60000)
end

-- Takes an entry out for good.
local function take_out(mailbox, live, active, member, entry, size)
  redis.call('XACK', mailbox, 'owner', entry)
  redis.call('XDEL', mailbox, entry)
  weigh(live, member, -size)
  if redis.call('XLEN', mailbox) == 0 then
    emptied(mailbox, active, member)
  end
end

-- Wakes the shard's owner, who wrote its inbox beside the fence; a message that is short goes with it.
local function nudge(fence, shard, member, entry, id, class, message)
  local owner = redis.call('HMGET', fence, 'f', 'i')
  if not owner[2] then
    return
  end
  if #message <= 4096 then
    redis.call(
      'XADD', owner[2], 'NOMKSTREAM', 'MAXLEN', '~', 10000, '*',
      'k', 'm', 's', shard, 'e', member, 'f', owner[1], 'n', entry, 'i', id, 'c', class, 'm', message
    )
  else
    redis.call('XADD', owner[2], 'NOMKSTREAM', 'MAXLEN', '~', 10000, '*', 'k', 'm', 's', shard, 'e', member, 'f', owner[1])
  end
end
