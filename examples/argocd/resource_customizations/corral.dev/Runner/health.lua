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
if obj.status == nil or obj.status.state == nil then
  return health("Progressing", "Waiting for the controller")
end
if stalled.status == "True" then
  return health("Degraded", stalled.message)
end
-- A runner's pod has its name, and isn't owned by it: a foreground deletion would end its job.
local state, why = obj.status.state, obj.status.reason or ""
if state == "Failed" then
  return health("Degraded", why)
end
if state == "Idle" or state == "Busy" or state == "Finished" then
  local job = obj.status.job
  if state == "Busy" and job ~= nil and job.repository ~= nil then
    why = why .. ": " .. job.repository .. " " .. (job.name or job.id)
  end
  return health("Healthy", state .. ", " .. why .. ", pod " .. obj.metadata.name)
end
-- Pending: what keeps it is in the message. Ready names what GitHub or the API server refused.
if ready.status == "False" and ready.message ~= nil then
  return health("Progressing", ready.message)
end
return health("Progressing", why)
