-- die makes a job that has left its line a dead letter, by its ExhaustedPolicy.
local function die(q, j, text, worker)
  local state = finish(q, j, DEAD)
  emit(q, 'dead', j.id, j.g, j.k, j.a, text, worker)
  local policy = j.E == 0 and q.cfg[ONEXHAUST] or j.E
  if policy == HOLD and j.g ~= '' then
    call('HSET', q.Q .. 'B', j.lane, sub(blocked(q, j.lane) or '0', 1, 1) .. '1' .. j.id)
    q.blocks = true
    emit(q, 'held', j.id, j.g, j.k, j.a, text, worker)
  end
  return state
end
