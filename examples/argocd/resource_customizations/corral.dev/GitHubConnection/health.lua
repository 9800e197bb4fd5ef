-- Conditions follow kstatus: Stalled is there only when no retry will help, and Ready always.
local function condition(kind)
  for _, c in ipairs((obj.status or {}).conditions or {}) do
    if c.type == kind then
      return c
    end
  end
  return {}
end

local function health(status, message)
  return {status = status, message = message or ""}
end

local ready, stalled = condition("Ready"), condition("Stalled")
if obj.status == nil or (obj.status.observedGeneration or -1) ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the controller")
end
if obj.spec.verification == "Paused" then
  return health("Suspended", ready.message or "Suspended")
end
if stalled.status == "True" then
  return health("Degraded", stalled.message)
end
if ready.status == "True" then
  return health("Healthy", ready.message)
end
-- What ends by itself.
local waiting = {Progressing = true}
if ready.status == "False" and not waiting[ready.reason] then
  return health("Degraded", ready.message)
end
return health("Progressing", ready.message or "Waiting for the controller")
