-- Sets how many permits a semaphore has. Those that this adds are left to those who wait; what was left to the last of
-- them and is too much is taken back.
--
-- KEYS  the semaphore's, then 1 queue   2 waiters
-- ARGV  the semaphore's, then 1 the new limit
-- Returns  0, or an error as acquire does if it cannot be set

if slot_refusal then
  return slot_refusal
end
if slot_found('') == -1 then
  return redis.error_reply('WRONGTYPE at the semaphore')
end
slot_set_limit(ARGV[1], 0)
if length(KEYS[1]) > 0 then
  local line = queue_at(KEYS[1], KEYS[2])
  line.take_back()
  line.serve()
end
return 0
