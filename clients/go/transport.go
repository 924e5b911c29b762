package countersink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	oneTry            = 10 * time.Second // after which an attempt is given up and repeated
	longestConnect    = 5 * time.Second
	longestRetryAfter = time.Hour
	noPath            = "there is no such path"
	firstPause        = 50 * time.Millisecond
	longestPause      = 5 * time.Second
	largestAnswer     = 64 << 20
)

// again are the statuses after which the same request may succeed.
var again = map[int]bool{408: true, 425: true, 429: true, 500: true, 502: true, 503: true, 504: true, 507: true}

// Error says why a request failed.
type Error struct {
	// Unavailable is true if the service did not answer in time, or is overloaded. Otherwise it refuses this request
	// and will refuse it again, or what answers is not Countersink.
	Unavailable bool
	// Status is that of the last answer; 0 if there was none.
	Status int
	// Field is the field that is wrong in the request, if the service named one.
	Field string
	// Detail says why.
	Detail string

	retryAfter    time.Duration
	counters      []string
	maybeAccepted bool
}

func (e *Error) Error() string { return "countersink: " + e.Detail }

// retries knows how long to wait until a request is sent again: longer each time, and as long as the service says.
type retries struct{ pause time.Duration }

func (r *retries) delay(failure *Error) time.Duration {
	if r.pause == 0 {
		r.pause = firstPause
	}
	delay := failure.retryAfter + time.Duration(float64(r.pause)*(0.5+rand.Float64()/2))
	if r.pause *= 2; r.pause > longestPause {
		r.pause = longestPause
	}
	return delay
}

type request struct {
	method, path string
	body         []byte
	header       http.Header
}

type transport struct {
	http   *http.Client
	url    string
	path   string // of the URL
	shown  string
	header http.Header
	key    func(context.Context) (string, error)
}

// printable says whether it can be sent as a key: ASCII without spaces.
func printable(key string) bool {
	for _, one := range []byte(key) {
		if one <= ' ' || one > '~' {
			return false
		}
	}
	return true
}

func newTransport(address string, options Options) (*transport, error) {
	parts, socket := &url.URL{Scheme: "http", Host: "localhost"}, strings.TrimPrefix(address, "unix:")
	if socket == address || socket == "" {
		found, err := url.Parse(address)
		if err != nil || (found.Scheme != "http" && found.Scheme != "https") || found.Host == "" ||
			found.RawQuery != "" || found.Fragment != "" {
			return nil, fmt.Errorf("countersink: %q is not the URL of a service: write it as http://HOST:PORT", address)
		}
		parts, socket = found, ""
	}
	it := &transport{shown: strings.TrimRight(parts.Redacted(), "/"), header: http.Header{}, key: options.KeyFunc}
	if socket != "" {
		it.shown = address
	}
	it.header.Set("User-Agent", "countersink-go")
	it.header.Set("Content-Type", "application/json")
	if user := parts.User; user != nil {
		password, _ := user.Password()
		basic := http.Request{Header: it.header}
		basic.SetBasicAuth(user.Username(), password)
		parts.User = nil
	}
	if options.Key != "" {
		it.header.Set("Authorization", "Bearer "+options.Key)
	}
	for name, values := range options.Header {
		it.header[http.CanonicalHeaderKey(name)] = values
	}
	it.url, it.path = strings.TrimRight(parts.String(), "/"), strings.TrimRight(parts.Path, "/")
	round := options.Transport
	if round == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		dialer := &net.Dialer{Timeout: longestConnect}
		own.DialContext = dialer.DialContext
		if socket != "" {
			own.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			}
		}
		round = own
	}
	it.http = &http.Client{
		Transport:     round,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return it, nil
}

// attempt sends the request once, and reads the JSON of the answer into `into`. The error says whether the request may
// have been accepted all the same.
func (t *transport) attempt(ctx context.Context, asked *request, limit time.Duration, into any) *Error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, used, failed := t.send(ctx, asked)
	if failed != nil {
		return failed
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, largestAnswer))
	if err != nil {
		return t.failure(err, true)
	}
	if failed := t.check(answer, said); failed != nil {
		failed.maybeAccepted = failed.maybeAccepted || used.Load() > 1
		return failed
	}
	if err := json.Unmarshal(said, into); err != nil {
		return t.foreign(err)
	}
	return nil
}

// send also returns how many connections were used: net/http itself sends a request again if it met the end of an idle
// one, and the first one may have arrived.
func (t *transport) send(ctx context.Context, asked *request) (*http.Response, *atomic.Int32, *Error) {
	used := &atomic.Int32{}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { used.Add(1) }}
	ctx = httptrace.WithClientTrace(ctx, trace)
	sent, err := http.NewRequestWithContext(ctx, asked.method, t.url+asked.path, bytes.NewReader(asked.body))
	if err != nil {
		return nil, used, &Error{Detail: err.Error()}
	}
	for _, header := range []http.Header{t.header, asked.header} {
		for name, values := range header {
			sent.Header[name] = values
		}
	}
	if t.key != nil {
		key, err := t.key(ctx)
		if err == nil && (key == "" || !printable(key)) {
			err = errors.New("it must be printable ASCII without spaces")
		}
		if err != nil {
			return nil, used, &Error{Unavailable: true, Detail: fmt.Sprintf("there is no key for %s: %v", t.shown, err)}
		}
		sent.Header.Set("Authorization", "Bearer "+key)
	}
	if host := sent.Header.Get("Host"); host != "" {
		sent.Host = host
	}
	answer, err := t.http.Do(sent)
	if err != nil {
		return nil, used, t.failure(err, used.Load() > 0)
	}
	return answer, used, nil
}

// failure is the error if there is no answer.
func (t *transport) failure(err error, maybeAccepted bool) *Error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	detail := fmt.Sprintf("no answer from %s: %v. Is it running, and is the URL right?", t.shown, err)
	if said := err.Error(); strings.Contains(said, "HTTP response to HTTPS client") {
		plain := strings.Replace(t.shown, "https", "http", 1)
		detail = fmt.Sprintf("%s does not speak TLS: write %s, or the port that does", t.shown, plain)
	} else if strings.Contains(said, "x509: ") {
		detail = fmt.Sprintf("the certificate of %s is not trusted: %v. Set SSL_CERT_FILE to a file with the authority that signed it", t.shown, err)
	}
	return &Error{Unavailable: true, Detail: detail, maybeAccepted: maybeAccepted}
}

// foreign is the error if another program answers, such as a captive portal.
func (t *transport) foreign(err error) *Error {
	detail := fmt.Sprintf("%s does not answer as Countersink does (%v): is the URL right?", t.shown, err)
	return &Error{Detail: detail, maybeAccepted: true}
}

// check returns the error if this is no answer 2xx.
func (t *transport) check(answer *http.Response, said []byte) *Error {
	status := answer.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	var problem struct {
		Detail   string
		Field    string
		Counters []string
	}
	if json.Unmarshal(said, &problem) != nil || problem.Detail == "" {
		problem.Detail = fmt.Sprintf("%s answered %s, not as Countersink does: is the URL right?", t.shown, answer.Status)
	}
	if t.path != "" && strings.HasPrefix(problem.Detail, noPath) {
		problem.Detail = fmt.Sprintf("%s at %s: leave %s out of the URL, unless a proxy removes it", noPath, t.shown, t.path)
	}
	failed := &Error{Status: status, Field: problem.Field, Detail: problem.Detail, counters: problem.Counters}
	failed.maybeAccepted = status >= 500
	renews := t.key != nil && status == http.StatusUnauthorized // the next key may be valid
	if again[status] || renews {
		failed.Unavailable = true
		failed.retryAfter = retryAfter(answer.Header)
		failed.maybeAccepted = status != http.StatusTooManyRequests && !renews
	}
	return failed
}

// retryAfter reads seconds or a date, which it compares with that of the answer, as clocks differ.
func retryAfter(header http.Header) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	var wait time.Duration
	if seconds, err := strconv.Atoi(text); err == nil && seconds < int(longestRetryAfter/time.Second) {
		wait = time.Duration(seconds) * time.Second
	} else if err == nil {
		wait = longestRetryAfter
	} else if until, err := http.ParseTime(text); err == nil {
		there, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			there = time.Now()
		}
		wait = until.Sub(there)
	}
	if wait > longestRetryAfter {
		return longestRetryAfter
	}
	if wait < 0 {
		return 0
	}
	return wait
}
