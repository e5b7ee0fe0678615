-- Fences are decimal text: they outgrow what a Lua number holds exactly.
local function is_newer(fence, than)
  if #fence ~= #than then
    return #fence > #than
  end
  return fence > than
end

-- The guard of every write: exactly the installed fence with its nonce, nothing newer, nothing older.
local function fence_word(key, fence, nonce)
  local stored = redis.call('HMGET', key, 'f', 'n')
  if not stored[1] then
    return 'unfenced'
  end
  if stored[1] ~= fence or stored[2] ~= nonce then
    return 'fenced'
  end
  return 'ok'
end
