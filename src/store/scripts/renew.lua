-- Makes what the caller holds last at least the given time from now. Never shortens it and never creates it.
--
-- KEYS  the slot's
-- ARGV  the slot's, then 1 token   2 lease in ms   3 given if replicas are to confirm it
-- Returns  1 if it is the caller's   0 if it is gone   -1 if something else stands there

local found = slot_found(ARGV[1])
if found == 1 then
  slot_prolong(ARGV[1], ARGV[2])
  if ARGV[3] then
    -- They are waited for until they have what this connection wrote last. So it writes, even if there was nothing to
    -- prolong: what another connection wrote may not have reached them.
    local left = call('PTTL', slot_key)
    call('PEXPIRE', slot_key, string.format('%.0f', left))
  end
end
return found
