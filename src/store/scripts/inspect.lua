-- Looks at the slot and changes nothing.
--
-- KEYS  the slot's, then 1 fencing counter   2 waiters
-- ARGV  the slot's
-- Returns  {{holder or claim and remaining ms, -1 for no end, again and again}, fencing counter or nil if its key holds
--          something else, how many wait, declared limit, limit that governs}

if slot_refusal and string.find(slot_refusal.err, 'KEYCONFLICT') then
  return slot_refusal
end
local holders, declared, limit = slot_look()
local counter = unless_wrong_type(pcall('GET', KEYS[1]), 'get') or false
local waiting, now = 0, millis()
for _, details in ipairs(unless_wrong_type(pcall('HVALS', KEYS[2]), 'hvals') or {}) do
  if tonumber(string.match(details, '^%d+')) > now then
    waiting = waiting + 1
  end
end
return {holders, counter, waiting, declared, limit}
