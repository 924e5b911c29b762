package countersink_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersink"
)

// serve accepts every batch once, by its key, and fails every third request.
func serve(t *testing.T) (*httptest.Server, func() int64) {
	var mu sync.Mutex
	var total int64
	keys, requests := map[string]bool{}, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var body struct{ Counters map[string]int64 }
		if err := json.NewDecoder(asked.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		key := asked.Header.Get("Idempotency-Key")
		if !keys[key] {
			for _, delta := range body.Counters {
				total += delta
			}
		}
		keys[key] = true
		if requests++; requests%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable) // though it was accepted
			return
		}
		fmt.Fprintf(w, `{"accepted": %d, "receipt": "r"}`, len(body.Counters))
	}))
	t.Cleanup(server.Close)
	return server, func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return total
	}
}

func TestGoroutinesCountWhileOthersFlushAndClose(t *testing.T) {
	server, total := serve(t)
	counters, err := countersink.New(server.URL, countersink.Options{Interval: time.Millisecond, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var counted atomic.Int64
	for worker := 0; worker < 8; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			for number := 0; number < 2_000; number++ {
				counters.Incr(fmt.Sprint("name", number%20))
				counted.Add(1)
				if worker < 2 && number%500 == 499 {
					if err := counters.Flush(ctx); err != nil {
						t.Error(err)
					}
				}
				if worker == 7 && number == 1_500 {
					if err := counters.Close(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		}(worker)
	}
	all.Wait()
	if err := counters.Close(ctx); err != nil {
		t.Error(err)
	}
	if got := total() + counters.Dropped(); got != counted.Load() {
		t.Errorf("%d accepted and %d dropped of %d", total(), counters.Dropped(), counted.Load())
	}
}

func TestNewRefusesWhatCanNotBeRight(t *testing.T) {
	for _, address := range []string{"", "unix:", "localhost:8080", "ftp://localhost", "http://localhost?x", "http://[::1"} {
		if _, err := countersink.New(address, countersink.Options{}); err == nil {
			t.Error(address)
		}
	}
	if _, err := countersink.New("http://localhost", countersink.Options{Key: "a b"}); err == nil {
		t.Error("a key with a space")
	}
	both := countersink.Options{Key: "a", KeyFunc: func(context.Context) (string, error) { return "b", nil }}
	if _, err := countersink.New("http://localhost", both); err == nil {
		t.Error("two keys")
	}
	if _, err := countersink.New("http://localhost", countersink.Options{Most: -1}); err == nil {
		t.Error("a negative number of names")
	}
}

func TestNewSaysThatADurationHasNoUnit(t *testing.T) {
	for said, options := range map[string]countersink.Options{
		"countersink: Interval is 200ns, less than 1ms: write 200 * time.Millisecond": {Interval: 200},
		"countersink: Patience is 2µs, less than 1ms: write 2000 * time.Millisecond":  {Patience: 2000},
	} {
		if _, err := countersink.New("http://localhost", options); err == nil || err.Error() != said {
			t.Errorf("%v, not %s", err, said)
		}
	}
	least := countersink.Options{Interval: time.Millisecond, Patience: time.Millisecond}
	if _, err := countersink.New("http://localhost", least); err != nil {
		t.Error(err)
	}
}

func TestReadsEndWithTheirContext(t *testing.T) {
	counters, err := countersink.New("http://127.0.0.1:1", countersink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := counters.Get(ctx, "a"); err != context.Canceled {
		t.Error(err)
	}
	each := func(countersink.Counter) error { return nil }
	if err := counters.Watch(ctx, each, "a", "b"); err != context.Canceled {
		t.Error(err)
	}
}
