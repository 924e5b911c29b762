// Package countersink is the client of Countersink, a counter service: it counts in the background, asks the service for
// everything else, and follows streams.
package countersink

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	mostNames     = 1_000
	longestQuery  = 12_000           // bytes of a URL; the service accepts a request line of 16,384
	shortestTry   = time.Second      // one attempt at least, however short the patience
	usualPatience = 30 * time.Second // for a stream, and for a list that has begun
	readPatience  = 2 * time.Second  // for a read, since a page may wait for it
	silence       = 30 * time.Second // after which a stream is given up. The service sends something every ten seconds
	largestLine   = 1 << 20          // bytes of a line of a stream
)

// Options of a client. The zero value of each field means its default.
type Options struct {
	// Key is the key that the service wants.
	Key string
	// KeyFunc returns the key, in place of Key. It is called before each attempt, by several goroutines at a time.
	KeyFunc func(ctx context.Context) (string, error)
	// Interval is the time in which increments gather, at least 1 ms; 200 ms by default.
	Interval time.Duration
	// Most is the number of names and ids that the client holds at most, besides as many that it is sending; 100,000 by
	// default.
	Most int
	// Patience is how long reads and streams are tried again, at least 1 ms. By default 2 s for reads, since a page may
	// wait for them, and 30 s for streams and for a list that has begun.
	Patience time.Duration
	// Header has headers of all requests.
	Header http.Header
	// Transport makes the requests, for example with certificates of your own.
	Transport http.RoundTripper
	// Logf is told, once for each kind of reason, that increments were dropped; log.Printf by default.
	Logf func(format string, arguments ...any)
}

// Client counts in the background. What only the client holds is lost if its process ends before Flush or Close. All
// methods may be called from any goroutine.
type Client struct {
	transport    *transport
	sender       *sender
	patience     time.Duration
	readPatience time.Duration
}

// Counter is a counter as the service reads it. Value is the sum of Applied and Pending.
type Counter struct {
	Name    string `json:"name"`
	Value   int64  `json:"value"`
	Applied int64  `json:"applied"`
	Pending int64  `json:"pending"`
	// Exact says whether Value includes every increment that was accepted before the read.
	Exact  bool      `json:"exact"`
	AsOf   time.Time `json:"as_of"`
	Shards int       `json:"shards"`
	Exists bool      `json:"exists"`
	// Generation changes when the counter is set, reset or deleted, and not when it counts.
	Generation int64 `json:"generation"`
	// UpdatedAt is when an increment was last applied; nil if none was, or if the service does not say so.
	UpdatedAt *time.Time `json:"updated_at"`
}

// Series is what was counted in each period. Periods in which nothing was counted are left out.
type Series struct {
	Name   string    `json:"name"`
	By     string    `json:"by"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Points []Point   `json:"points"`
	Total  int64     `json:"total"`
	Exact  bool      `json:"exact"`
	AsOf   time.Time `json:"as_of"`
}

// Point is one period of a Series.
type Point struct {
	From  time.Time `json:"from"`
	Count int64     `json:"count"`
}

// New makes a client of the service at this URL, or at unix:PATH. It fails if the URL or an option is wrong.
func New(address string, options Options) (*Client, error) {
	if options.Interval < 0 || options.Most < 0 || options.Patience < 0 {
		return nil, errors.New("countersink: Interval, Most and Patience must not be negative")
	}
	for name, given := range map[string]time.Duration{"Interval": options.Interval, "Patience": options.Patience} {
		if 0 < given && given < time.Millisecond {
			return nil, fmt.Errorf("countersink: %s is %s, less than 1ms: write %d * time.Millisecond", name, given, given)
		}
	}
	if !printable(options.Key) || (options.Key != "" && options.KeyFunc != nil) {
		return nil, errors.New("countersink: the key must be printable ASCII without spaces, or given by KeyFunc")
	}
	if options.Interval == 0 {
		options.Interval = 200 * time.Millisecond
	}
	if options.Most == 0 {
		options.Most = 100_000
	}
	patience, reads := options.Patience, options.Patience
	if options.Patience == 0 {
		patience, reads = usualPatience, readPatience
	}
	if options.Logf == nil {
		options.Logf = log.Printf
	}
	found, err := newTransport(address, options)
	if err != nil {
		return nil, err
	}
	return &Client{found, newSender(found, options), patience, reads}, nil
}

// Incr adds one to a counter, in the background. It does not wait for the service, and can't fail.
func (c *Client) Incr(name string) { c.sender.add(name, 1, nil) }

// Add is Incr with a number, which may be negative.
func (c *Client) Add(name string, delta int64) { c.sender.add(name, delta, nil) }

// AddOnce is Add with an id: it counts once, however often and from wherever it is called with this id.
func (c *Client) AddOnce(name string, delta int64, id string) { c.sender.add(name, delta, &id) }

// Dropped is how many increments were dropped: they do not count, or nobody knows.
func (c *Client) Dropped() int64 {
	c.sender.mu.Lock()
	defer c.sender.mu.Unlock()
	return c.sender.dropped
}

// Flush waits until everything counted before is accepted or dropped. If the context ends first, it returns its error.
func (c *Client) Flush(ctx context.Context) error { return c.sender.flush(ctx) }

// Close sends the rest, until the context ends, and ends the client. It returns an error if something was left, which is
// dropped.
func (c *Client) Close(ctx context.Context) error { return c.sender.close(ctx) }

// Get reads a counter. One that was never counted is 0, and does not exist.
func (c *Client) Get(ctx context.Context, name string) (Counter, error) {
	found := Counter{}
	path, err := pathOf(name)
	if err != nil {
		return found, err
	}
	err = c.ask(ctx, path, &found)
	return found, err
}

// GetMany reads several counters; the answers are in the same order.
func (c *Client) GetMany(ctx context.Context, names ...string) ([]Counter, error) {
	found := make([]Counter, 0, len(names))
	for len(names) > 0 {
		query, number := "", 0
		for ; number < len(names) && number < mostNames && len(query) < longestQuery-3*maxNameBytes; number++ {
			if flaw := flawOfName(names[number]); flaw != "" {
				return nil, &Error{Detail: flaw, Field: "name"}
			}
			query += "&name=" + url.QueryEscape(names[number])
		}
		part := page{}
		if err := c.ask(ctx, "/v1/counters?"+query[1:], &part); err != nil {
			return nil, err
		}
		found, names = append(found, part.Counters...), names[number:]
	}
	return found, nil
}

type page struct {
	Counters []Counter
	Next     string `json:"next_page_token"`
}

// List calls `each` with all counters under the prefix, in the order of their names, until it returns an error.
func (c *Client) List(ctx context.Context, prefix string, each func(Counter) error) error {
	return c.list(ctx, url.Values{"prefix": {prefix}}, each)
}

// ListContaining is List for those counters under the prefix whose names have this part. The service must keep its data
// in a SQLite file.
func (c *Client) ListContaining(ctx context.Context, prefix, part string, each func(Counter) error) error {
	return c.list(ctx, url.Values{"prefix": {prefix}, "contains": {part}}, each)
}

func (c *Client) list(ctx context.Context, query url.Values, each func(Counter) error) error {
	patience := c.readPatience
	for {
		found := page{}
		if err := c.askFor(ctx, patience, "/v1/counters?"+query.Encode(), &found); err != nil {
			return err
		}
		for _, one := range found.Counters {
			if err := each(one); err != nil {
				return err
			}
		}
		if found.Next == "" {
			return nil
		}
		query.Set("page_token", found.Next)
		patience = c.patience
	}
}

// Top reads the n largest counters under the prefix, the largest first.
func (c *Client) Top(ctx context.Context, prefix string, n int) ([]Counter, error) {
	query := url.Values{"prefix": {prefix}, "order": {"value"}, "limit": {strconv.Itoa(n)}}
	found := page{}
	err := c.ask(ctx, "/v1/counters?"+query.Encode(), &found)
	return found.Counters, err
}

// Series reads what was counted in each "minute", "hour" or "day" between two instants, of which each may be zero: the
// oldest period that is kept, and the present one.
func (c *Client) Series(ctx context.Context, name, by string, from, to time.Time) (Series, error) {
	found, query := Series{}, url.Values{"by": {by}}
	if !from.IsZero() {
		query.Set("from", from.UTC().Format(time.RFC3339Nano))
	}
	if !to.IsZero() {
		query.Set("to", to.UTC().Format(time.RFC3339Nano))
	}
	path, err := pathOf(name)
	if err != nil {
		return found, err
	}
	err = c.ask(ctx, path+"/series?"+query.Encode(), &found)
	return found, err
}

// Watch calls `each` with these counters as they change: their values now, and each change, until it returns an error or
// the context ends. If the stream is cut, it connects again.
func (c *Client) Watch(ctx context.Context, each func(Counter) error, names ...string) error {
	for _, name := range names {
		if flaw := flawOfName(name); flaw != "" {
			return &Error{Detail: flaw, Field: "name"}
		}
	}
	if len(names) == 1 {
		path, _ := pathOf(names[0])
		return c.watch(ctx, path+"/watch", each)
	}
	return c.watch(ctx, "/v1/watch?"+url.Values{"name": names}.Encode(), each)
}

// WatchPrefix is Watch for all counters under a prefix.
func (c *Client) WatchPrefix(ctx context.Context, prefix string, each func(Counter) error) error {
	return c.watch(ctx, "/v1/watch?"+url.Values{"prefix": {prefix}}.Encode(), each)
}

func (c *Client) watch(ctx context.Context, path string, each func(Counter) error) error {
	if len(path) > longestQuery {
		return &Error{Detail: "the list of names is too long: watch a prefix", Field: "name"}
	}
	last := ""
	again, until := retries{}, time.Now().Add(c.patience)
	alive := func() {
		again, until = retries{}, time.Now().Add(c.patience)
	}
	for {
		err := c.follow(ctx, path, &last, alive, each)
		var failed *Error
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.As(err, &failed) || !failed.Unavailable {
			return err
		}
		if err := c.waitAfter(ctx, failed, &again, until); err != nil {
			return err
		}
	}
}

// follow reads one connection's stream to its end.
func (c *Client) follow(ctx context.Context, path string, last *string, alive func(), each func(Counter) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if *last != "" {
		header.Set("Last-Event-Id", *last)
	}
	answer, _, failed := c.transport.send(ctx, &request{http.MethodGet, path, nil, header})
	if failed != nil {
		return failed
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, largestAnswer))
		if failed := c.transport.check(answer, said); failed != nil {
			return failed
		}
		return c.transport.foreign(fmt.Errorf("status %d", answer.StatusCode))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, largestLine)
	fields := map[string]string{}
	for lines.Scan() {
		quiet.Reset(silence)
		if line := lines.Text(); line != "" {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimPrefix(value, " ")
			continue
		}
		alive()
		if id, ok := fields["id"]; ok {
			*last = id
		}
		if data, ok := fields["data"]; ok {
			if err := c.event(fields["event"], data, each); err != nil {
				return err
			}
		}
		fields = map[string]string{}
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("the stream has ended")
	}
	return c.transport.failure(err, false)
}

func (c *Client) event(kind, data string, each func(Counter) error) error {
	if kind == "problem" {
		problem := Error{}
		if err := json.Unmarshal([]byte(data), &problem); err != nil {
			return c.transport.foreign(err)
		}
		return &problem
	}
	found := Counter{}
	if err := json.Unmarshal([]byte(data), &found); err != nil {
		return c.transport.foreign(err)
	}
	return each(found)
}

func (c *Client) ask(ctx context.Context, path string, into any) error {
	return c.askFor(ctx, c.readPatience, path, into)
}

// askFor repeats the request until there is an answer, or the patience is over.
func (c *Client) askFor(ctx context.Context, patience time.Duration, path string, into any) error {
	until, again := time.Now().Add(patience), retries{}
	for {
		limit := time.Until(until)
		if limit < shortestTry {
			limit = shortestTry
		}
		if limit > oneTry {
			limit = oneTry
		}
		failed := c.transport.attempt(ctx, &request{method: http.MethodGet, path: path}, limit, into)
		if failed == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !failed.Unavailable {
			return failed
		}
		if err := c.waitAfter(ctx, failed, &again, until); err != nil {
			return err
		}
	}
}

// waitAfter waits until the next try. It returns the failure if that would be too late.
func (c *Client) waitAfter(ctx context.Context, failed *Error, again *retries, until time.Time) error {
	delay := again.delay(failed)
	if time.Now().Add(delay).After(until) {
		return failed
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func pathOf(name string) (string, error) {
	if flaw := flawOfName(name); flaw != "" {
		return "", &Error{Detail: flaw, Field: "name"}
	}
	return "/v1/counters/" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20"), nil
}
