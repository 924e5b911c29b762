package countersink

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxNameBytes  = 400
	maxIDBytes    = 1_000
	maxDelta      = 1<<53 - 1
	mostItems     = 1_000      // names, or increments with ids, in a request
	largestBody   = 256 * 1024 // bytes, about. Proxies often refuse a megabyte
	shortestPause = 100 * time.Millisecond
	moment        = 20 * time.Millisecond // until it is looked at again whether something may be sent, while somebody waits
	oldest        = 7 * 24 * time.Hour    // after which a batch in doubt is given up: the service forgets its key after 8 days
	mostRefusals  = 20                    // in a row, after which it seems not to be about some names
)

// split are the statuses that may be about some names of a batch. Its parts are tried, so that the others count.
var split = map[int]bool{400: true, 403: true, 413: true, 422: true, 429: true}

// entry is a sum by name, or an increment with an id.
type entry struct {
	Counter string `json:"counter"`
	Delta   int64  `json:"delta"`
	ID      string `json:"id,omitempty"`

	maxes int64 // maxDelta so many times, besides Delta
	calls int64
}

func (e *entry) add(delta int64) {
	e.Delta += delta
	if e.Delta > maxDelta {
		e.Delta, e.maxes = e.Delta-maxDelta, e.maxes+1
	} else if e.Delta < -maxDelta {
		e.Delta, e.maxes = e.Delta+maxDelta, e.maxes-1
	}
	e.calls++
}

// piece takes from the sum what one request may have, with its share of the calls.
func (e *entry) piece() *entry {
	if e.maxes == 0 {
		return e
	}
	sign := int64(1)
	if e.maxes < 0 {
		sign = -1
	}
	share := e.calls / (sign*e.maxes + 1)
	e.maxes, e.calls = e.maxes-sign, e.calls-share
	return &entry{Counter: e.Counter, Delta: sign * maxDelta, calls: share}
}

// pause is until when to wait.
type pause struct {
	shortest time.Time // while somebody waits for it
	full     time.Time
}

func pauseOf(r *retries, failure *Error) pause {
	now, delay := time.Now(), r.delay(failure)
	shortest := delay
	if shortest > shortestPause {
		shortest = shortestPause
	}
	if shortest < failure.retryAfter {
		shortest = failure.retryAfter
	}
	return pause{now.Add(shortest), now.Add(delay)}
}

// batch is sums under a key of their own, or increments with ids. Both count once, however often they are sent.
type batch struct {
	entries  []*entry
	keyed    bool
	doubtful bool // it may have been accepted: from then on its key and its bytes stay
	made     time.Time
	turn     int // when it was taken. Parts have that of the whole
	tries    int
	retries  retries
	pause    pause
	request  *request
}

func (b *batch) calls() (all int64) {
	for _, one := range b.entries {
		all += one.calls
	}
	return all
}

// age is measured by both clocks: one stands still while the machine is suspended, and the other one may be set.
func (b *batch) age() time.Duration {
	age := time.Since(b.made)
	if wall := time.Now().Round(0).Sub(b.made.Round(0)); wall > age {
		return wall
	}
	return age
}

func (b *batch) asked() *request {
	if b.request != nil {
		return b.request
	}
	header, body := http.Header{}, []byte(nil)
	if b.keyed {
		body, _ = json.Marshal(b.entries)
	} else {
		header.Set("Idempotency-Key", mint())
		deltas := make(map[string]int64, len(b.entries))
		for _, one := range b.entries {
			deltas[one.Counter] = one.Delta
		}
		body, _ = json.Marshal(map[string]any{"counters": deltas})
	}
	b.request = &request{http.MethodPost, "/v1/increments", body, header}
	return b.request
}

func mint() string {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		panic(err) // no key may be used twice
	}
	return hex.EncodeToString(id)
}

// parts are the same in two: what has these names, and the others; or every second one. None if that is not safe.
func (b *batch) parts(refused []string) []*batch {
	if len(b.entries) < 2 || (b.doubtful && !b.keyed) {
		return nil
	}
	named, found := map[string]bool{}, false
	for _, name := range refused {
		named[name] = true
	}
	for _, one := range b.entries {
		found = found || named[one.Counter]
	}
	halves := [2][]*entry{}
	for number, one := range b.entries {
		which := number % 2
		if found {
			which = 1
			if named[one.Counter] {
				which = 0
			}
		}
		halves[which] = append(halves[which], one)
	}
	if len(halves[0]) == 0 || len(halves[1]) == 0 {
		return nil
	}
	like := batch{keyed: b.keyed, doubtful: b.doubtful, made: b.made, turn: b.turn}
	first, second := like, like
	first.entries, second.entries = halves[0], halves[1]
	return []*batch{&first, &second}
}

type accepted struct {
	Accepted *int64
	Rejected []struct {
		Index   *int
		Counter string
		Reason  string
	}
	Count int `json:"rejected_count"`
}

// rejected is how many calls are in what the service did not accept, and why.
func (b *batch) rejected(answer *accepted) (calls int64, reason string) {
	rest := append([]*entry(nil), b.entries...)
	for _, flaw := range answer.Rejected {
		reason = answer.Rejected[0].Reason
		for number, one := range rest {
			if one != nil && ((flaw.Index != nil && *flaw.Index == number) || (flaw.Index == nil && one.Counter == flaw.Counter)) {
				calls += one.calls
				rest[number] = nil
				break
			}
		}
	}
	// The answer names the first 100. The others are most likely refused for their deltas, which a key may limit.
	likely := rest[:0]
	for _, one := range rest {
		if one != nil {
			likely = append(likely, one)
		}
	}
	sort.SliceStable(likely, func(i, j int) bool {
		a, b := likely[i].Delta, likely[j].Delta
		if (a < 0) != (b < 0) {
			return a < 0
		}
		return a < 0 && a < b || a >= 0 && a > b
	})
	for _, one := range likely {
		if answer.Count <= len(answer.Rejected) {
			break
		}
		answer.Count--
		calls += one.calls
	}
	return calls, reason
}

type itemKey struct {
	counter string
	delta   int64
	id      string
}

// flush is somebody who waits. It is done when everything counted before is settled.
type flush struct {
	turn int // the last turn in which any of that was taken; -1 before
	done chan struct{}
}

// sender has one goroutine, while there is something to send. What is above `mu` is that goroutine's own.
type sender struct {
	transport *transport
	interval  time.Duration
	most      int
	logf      func(string, ...any)

	outgoing []*batch // a batch stays here until it is settled, also while it is sent. Those that failed come last
	turn     int      // how often everything was taken that was counted
	retries  retries
	pause    pause
	refusals int // batches in a row that were refused when they were tried for the first time

	ctx     context.Context // ends when nothing more may be sent
	stop    context.CancelFunc
	bell    chan struct{}
	running sync.WaitGroup
	logging sync.WaitGroup

	mu       sync.Mutex
	sums     map[string]*entry
	items    map[itemKey]*entry
	dropped  int64
	told     map[string]bool // kinds of reasons that the log has named
	flushes  map[*flush]bool
	started  bool
	closed   bool
	deadline time.Time // of `close`
}

func newSender(t *transport, options Options) *sender {
	ctx, stop := context.WithCancel(context.Background())
	return &sender{
		transport: t, interval: options.Interval, most: options.Most, logf: options.Logf,
		ctx: ctx, stop: stop, bell: make(chan struct{}, 1),
		sums: map[string]*entry{}, items: map[itemKey]*entry{}, told: map[string]bool{}, flushes: map[*flush]bool{},
	}
}

// add takes an increment. It waits for nothing but the short steps of others under the lock.
func (s *sender) add(counter string, delta int64, id *string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		s.drop(1, "the client is closed", "closed")
		return
	case delta < -maxDelta || delta > maxDelta:
		s.drop(1, fmt.Sprintf("the delta must be between -%d and %d", maxDelta, maxDelta), "delta")
		return
	}
	key := itemKey{}
	there := s.sums[counter]
	if id != nil {
		key = itemKey{counter, delta, *id}
		there = s.items[key]
	}
	if there != nil && id == nil {
		there.add(delta)
		return
	} else if there != nil {
		there.calls++
		return
	}
	flaw := flawOfName(counter)
	if flaw == "" && id != nil {
		flaw = flawOfText("id", *id, maxIDBytes)
	}
	if flaw != "" {
		s.drop(1, flaw, strings.TrimRight(flaw, "0123456789"))
		return
	}
	if len(s.sums)+len(s.items) >= s.most {
		s.drop(1, fmt.Sprintf("%d names and ids that are not sent yet are held already", s.most), "full")
		return
	}
	one := &entry{Counter: counter, Delta: delta, calls: 1}
	if id == nil {
		s.sums[counter] = one
	} else {
		one.ID = *id
		s.items[key] = one
	}
	s.start()
	if s.isHalfFull() {
		s.ring()
	}
}

// isHalfFull is whether it does not wait for its interval. Hold the lock.
func (s *sender) isHalfFull() bool {
	return 2*(len(s.sums)+len(s.items)) > s.most
}

// ring has the goroutine look again how long it waits.
func (s *sender) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// drop notes that these increments do not count. The log says so, once for each kind of reason. Hold the lock.
func (s *sender) drop(calls int64, reason, kind string) {
	s.dropped += calls
	if !s.told[kind] {
		s.told[kind] = true
		s.logging.Add(1)
		increments := "increments"
		if calls == 1 {
			increments = "increment"
		}
		go func() { // it may be slow
			defer s.logging.Done()
			s.logf("countersink dropped %d %s: %s. Later, only Dropped of the client counts them", calls, increments, reason)
		}()
	}
}

// start the goroutine if it does not run. Hold the lock.
func (s *sender) start() {
	if !s.started && s.ctx.Err() == nil {
		s.started = true
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			for s.wait() {
				s.round()
			}
		}()
	}
}

func (s *sender) flush(ctx context.Context) error {
	waiting := &flush{turn: -1, done: make(chan struct{})}
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil // the rest was dropped
	}
	s.flushes[waiting] = true
	s.start()
	s.mu.Unlock()
	s.ring()
	defer func() {
		s.mu.Lock()
		delete(s.flushes, waiting)
		s.mu.Unlock()
	}()
	select {
	case <-waiting.done:
		return nil
	case <-s.ctx.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errLeft = errors.New("countersink: the client was closed before the service accepted everything")

func (s *sender) close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if deadline, ok := ctx.Deadline(); ok && first {
		s.deadline = deadline
	}
	s.mu.Unlock()
	err := s.flush(ctx)
	s.mu.Lock()
	s.stop() // under the lock: no goroutine starts after it
	s.mu.Unlock()
	s.running.Wait()
	if !first {
		return err
	}
	defer s.logging.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := int64(0)
	for _, one := range s.outgoing {
		left += one.calls()
	}
	for _, one := range s.sums {
		left += one.calls
	}
	for _, one := range s.items {
		left += one.calls
	}
	s.transport.http.CloseIdleConnections()
	if left == 0 {
		return nil
	}
	s.drop(left, fmt.Sprintf("the client was closed before %s accepted them", s.transport.shown), "left")
	return errLeft
}

func (s *sender) hurries() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flushes) > 0
}

func (s *sender) over(p pause) bool {
	if s.hurries() {
		return !time.Now().Before(p.shortest)
	}
	return !time.Now().Before(p.full)
}

// wait until the next round. It returns false if there is nothing to do, or nothing may be done any more.
func (s *sender) wait() bool {
	begun := time.Now()
	for {
		s.mu.Lock()
		hurries, waits, isHalfFull := len(s.flushes) > 0, len(s.outgoing) > 0, s.isHalfFull()
		if s.ctx.Err() != nil || !hurries && !waits && len(s.sums)+len(s.items) == 0 {
			s.started = false
			s.mu.Unlock()
			return false
		}
		s.mu.Unlock()
		rest := s.interval
		switch {
		case (hurries || isHalfFull) && !waits && s.over(s.pause):
			rest = 0
		case hurries:
			rest = moment
		case isHalfFull:
			rest = shortestPause
		case waits:
			if retry := s.retry().Sub(begun); retry < rest {
				rest = retry
			}
			if rest < shortestPause {
				rest = shortestPause
			}
		}
		if rest -= time.Since(begun); rest <= 0 {
			return true
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-s.bell:
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}

// retry is when a batch that waits may be tried again.
func (s *sender) retry() time.Time {
	first := s.outgoing[0].pause.full
	for _, one := range s.outgoing {
		if one.pause.full.Before(first) {
			first = one.pause.full
		}
	}
	if first.Before(s.pause.full) {
		return s.pause.full
	}
	return first
}

// round takes what was counted, and sends it.
func (s *sender) round() {
	s.take(s.over(s.pause))
	for s.ctx.Err() == nil {
		next := s.next()
		if next == nil {
			break
		}
		if settled := s.send(next); !settled && next.tries > 1 {
			break // as others of those that failed may do
		}
	}
	s.settle()
}

// take puts the sums into batches, as many as there is room for.
func (s *sender) take(mayTake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !mayTake && len(s.sums)+len(s.items) > 0 {
		return
	}
	room := s.most
	for _, one := range s.outgoing {
		room -= len(one.entries)
	}
	var sums, items []*entry
	for name, one := range s.sums {
		if room--; room < 0 {
			break
		}
		piece := one.piece()
		if piece == one {
			delete(s.sums, name)
		}
		sums = append(sums, piece)
	}
	for key, one := range s.items {
		if room--; room < 0 {
			break
		}
		delete(s.items, key)
		items = append(items, one)
	}
	sort.Slice(sums, func(i, j int) bool { return sums[i].Counter < sums[j].Counter }) // as in the body
	s.outgoing = append(append(batches(sums, false, s.turn), batches(items, true, s.turn)...), s.outgoing...)
	if len(s.sums)+len(s.items) > 0 {
		return
	}
	for one := range s.flushes {
		if one.turn < 0 {
			one.turn = s.turn
		}
	}
	s.turn++
}

func batches(entries []*entry, keyed bool, turn int) (all []*batch) {
	size := 0
	for _, one := range entries {
		more := len(one.Counter) + len(one.ID) + 60
		if len(all) == 0 || len(all[len(all)-1].entries) == mostItems || size+more > largestBody {
			all, size = append(all, &batch{keyed: keyed, turn: turn, made: time.Now()}), 0
		}
		last := all[len(all)-1]
		last.entries = append(last.entries, one)
		size += more
	}
	return all
}

// next is the batch that may be tried now.
func (s *sender) next() *batch {
	if !s.over(s.pause) {
		return nil
	}
	for _, one := range s.outgoing {
		if s.over(one.pause) {
			return one
		}
	}
	return nil
}

// settle tells those who flush that all of theirs is settled.
func (s *sender) settle() {
	first := s.turn
	for _, one := range s.outgoing {
		if one.turn < first {
			first = one.turn
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.flushes {
		if one.turn >= 0 && one.turn < first {
			delete(s.flushes, one)
			close(one.done)
		}
	}
}

// send is one attempt. It returns whether the batch is settled.
func (s *sender) send(b *batch) bool {
	if b.doubtful && b.age() > oldest {
		s.dropBatch(b, "for a week they have had no clear answer", "old")
		return true
	}
	b.tries++
	answer := accepted{}
	failed := s.transport.attempt(s.ctx, b.asked(), s.limit(), &answer)
	if failed == nil && answer.Accepted == nil {
		failed = s.transport.foreign(errors.New("no number of accepted increments"))
	}
	if failed == nil {
		s.remove(b)
		s.retries, s.pause, s.refusals = retries{}, pause{}, 0
		if calls, reason := b.rejected(&answer); calls > 0 {
			s.mu.Lock()
			s.drop(calls, reason, "rejected")
			s.mu.Unlock()
		}
		return true
	}
	refused := !failed.Unavailable && failed.Status >= 400 && failed.Status < 500
	if refused || failed.Status == http.StatusTooManyRequests {
		return s.refused(b, failed)
	}
	b.doubtful = b.doubtful || failed.maybeAccepted || !failed.Unavailable
	s.later(b, failed)
	s.pause = pauseOf(&s.retries, failed)
	return false
}

// limit is how long one attempt may take. If the client is closed, the others shall be tried, too.
func (s *sender) limit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline.IsZero() {
		return oneTry
	}
	rest := time.Until(s.deadline)
	if len(s.outgoing) > 1 {
		rest /= 2
	}
	if rest < 50*time.Millisecond {
		return 50 * time.Millisecond
	}
	if rest > oneTry {
		return oneTry
	}
	return rest
}

// refused means that the service will not take all of it, perhaps a part. It returns whether the batch is settled.
func (s *sender) refused(b *batch, failed *Error) bool {
	b.doubtful = b.doubtful || failed.maybeAccepted
	tooMany := failed.Status == http.StatusTooManyRequests
	if b.tries == 1 && len(failed.counters) == 0 {
		s.refusals++
	}
	allOfIt := s.refusals > mostRefusals
	var parts []*batch
	if split[failed.Status] {
		parts = b.parts(failed.counters)
	}
	waiting := 0
	for _, one := range s.outgoing {
		waiting += len(one.entries)
	}
	settled := false
	switch {
	case parts != nil:
		s.remove(b)
		s.outgoing = append(parts, s.outgoing...)
		for _, part := range parts {
			if allOfIt {
				s.later(part, failed)
			}
		}
	case !tooMany:
		s.dropBatch(b, failed.Detail, fmt.Sprintf("refused with %d", failed.Status))
		settled = true
	case 2*waiting > s.most:
		s.dropBatch(b, "too many increments wait that the service does not take: "+failed.Detail, "refused with 429")
		settled = true
	default:
		s.later(b, failed)
	}
	if allOfIt && tooMany && b.tries == 1 {
		s.pause = pauseOf(&retries{}, failed)
	}
	return settled
}

// later lets it wait behind the others.
func (s *sender) later(b *batch, failed *Error) {
	if b.tries == 0 {
		b.tries = 1
	}
	b.pause = pauseOf(&b.retries, failed)
	s.remove(b)
	s.outgoing = append(s.outgoing, b)
}

func (s *sender) remove(b *batch) {
	for number, one := range s.outgoing {
		if one == b {
			s.outgoing = append(s.outgoing[:number], s.outgoing[number+1:]...)
			return
		}
	}
}

func (s *sender) dropBatch(b *batch, reason, kind string) {
	s.remove(b)
	s.mu.Lock()
	s.drop(b.calls(), reason, kind)
	s.mu.Unlock()
}

// flawOfName is why this can't be the name of a counter; empty if it can.
func flawOfName(name string) string {
	if flaw := flawOfText("counter's name", name, maxNameBytes); flaw != "" {
		return flaw
	}
	if strings.IndexFunc(name, unicode.IsControl) >= 0 {
		return "the counter's name must not hold control characters"
	}
	if name == "." || name == ".." || len(name) >= 4 && strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		return "the counter's name must not be '.', '..' or of the form '__…__'"
	}
	return ""
}

func flawOfText(what, text string, most int) string {
	if !utf8.ValidString(text) {
		return "the " + what + " must be valid UTF-8"
	}
	if len(text) < 1 || len(text) > most {
		return fmt.Sprintf("the %s must be 1 to %d bytes of UTF-8, is %d", what, most, len(text))
	}
	return ""
}
