-- Grants several locks at once: those that are free or the caller's already, in the order of the keys, up to the first
-- that is taken. What was left to a waiter is taken.
--
-- KEYS  for each lock: 1 lock   2 fencing counter
-- ARGV  1 lease in ms   2 how long the counters outlive the grants, in ms   3 1 to grant all or none, else 0
--       4 … token, for each lock
-- Returns  {which one is taken, or 0; {the fencing token of each that was granted}}
--          the error KEYCONFLICT <which key> if a key holds something else

local taken, granted, holders = 0, {}, {}

-- Everything that can be wrong is found out before the first write.
for at = 1, #KEYS / 2 do
  local token = ARGV[at + 3]
  local holder = unless_wrong_type(pcall('GET', KEYS[2 * at - 1]), 'get')
  if holder == nil then
    return redis.error_reply('KEYCONFLICT ' .. 2 * at - 1)
  end
  if holder and holder ~= token then
    taken = at
    break
  end
  holders[at] = holder
  granted[at] = next_fencing_tokens(KEYS[2 * at], 1)
  if not granted[at] then
    return redis.error_reply('KEYCONFLICT ' .. 2 * at)
  end
end

if taken > 0 and ARGV[3] == '1' then
  return {taken, {}}
end
for at, fencing_token in ipairs(granted) do
  local lock, token = KEYS[2 * at - 1], ARGV[at + 3]
  if holders[at] == token then
    outlast(lock, tonumber(ARGV[1]))
  else
    call('SET', lock, token, 'PX', ARGV[1])
  end
  call('SET', KEYS[2 * at], string.format('%.0f', fencing_token), 'PX', ARGV[2])
end
return {taken, granted}
