-- All loads for wrk: wrk -s load.lua URL -- MODE METHOD PATH BODY-FILE PREFIX. The modes are those of shapes.py.

local NAMES = 1000

-- Called by wrk.init, which makes the fixed request afterwards.
function init(args)
  local mode, method, path, file, prefix = args[1], args[2], args[3], args[4], args[5]
  local body = nil
  if file ~= "" then
    local opened = assert(io.open(file, "rb"))
    body = opened:read("*a")
    opened:close()
  end
  wrk.method, wrk.path, wrk.body = method, path, body
  if mode == "fixed" then
    return
  end
  local count = 0
  local made = {}
  for name = 0, NAMES - 1 do
    made[name] = wrk.format(method, path .. name)
  end
  local gets = {}
  for name = 0, NAMES - 1 do
    gets[name] = wrk.format("GET", path .. name, nil, "")
  end
  if mode == "ids" then
    request = function()
      count = count + 1
      return wrk.format(nil, nil, nil, '{"id":"' .. prefix .. count .. '"}')
    end
  elseif mode == "names" then
    request = function()
      count = count + 1
      return made[count % NAMES]
    end
  elseif mode == "mixed" then
    request = function()
      count = count + 1
      local which = math.floor(count / 2) % NAMES
      return count % 2 == 0 and made[which] or gets[which]
    end
  else
    error("unknown mode " .. mode)
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"seconds": %.6f, "answered": %d, "refused": %d, "broken": %d, "p50": %.3f, "p99": %.3f}\n',
    summary.duration / 1e6, summary.requests, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
