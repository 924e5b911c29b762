// Counts from web pages: countersink.count("page:home"). Each count has an id, so sending it again is safe.
(() => {
  const script = document.currentScript
  const { key, count: name } = script.dataset
  const url = new URL("v1/increments" + (key ? "?key=" + encodeURIComponent(key) : ""), script.src)
  const most = 100 // counts that wait; a browser lets a page that is being closed send 64 KiB
  let size = most // counts in a request
  let waiting = []
  let busy = false
  let pause = 1000

  const send = async () => {
    if (busy || !waiting.length) return
    busy = true
    const sent = waiting.slice(0, size)
    // A string is sent as text/plain, for which a browser asks no permission first.
    const request = { method: "POST", body: JSON.stringify(sent), keepalive: true, credentials: "omit" }
    const answer = await fetch(url, request).catch(() => ({ status: 0 }))
    const status = answer.status
    if (status == 413 && sent.length > 1) {
      size = sent.length >> 1 // the key allows less at once
    } else if (status && status < 500 && status != 408 && status != 429) {
      if (status > 299) {
        const problem = await answer.json().catch(() => ({}))
        console.warn("countersink: refused with", status, problem.detail || "")
      }
      waiting = waiting.slice(sent.length)
      pause = 1000
    } else {
      await new Promise(done => setTimeout(done, pause))
      pause = Math.min(pause * 2, 60000)
    }
    busy = false
    send()
  }

  const count = (counter, delta = 1) => {
    if (waiting.length >= most) return false
    const id = crypto.getRandomValues(new Uint32Array(4)).join("-")
    waiting.push({ counter, delta, id })
    send()
    return true
  }

  // The page may be closed next, and then nothing else is sent.
  addEventListener("visibilitychange", () => {
    if (!document.hidden) return
    for (let i = 0; i < waiting.length; i += size) navigator.sendBeacon(url, JSON.stringify(waiting.slice(i, i + size)))
  })

  window.countersink = { count }
  if (name) count(name)
})()
