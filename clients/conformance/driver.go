// Does with the client for Go what a scenario says. README.md has the steps.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"countersink"
)

type arguments struct {
	Name, Prefix, Period string
	Contains             string
	Names                []string
	ID                   *string
	By                   *int64
	Each, Times, N       int
	Until                int64
	Seconds              float64
}

type answer map[string]any

var errEnough = errors.New("enough")

func do(counters *countersink.Client, step string, a arguments) (answer, error) {
	ctx := context.Background()
	within, cancel := context.WithTimeout(ctx, time.Duration(a.Seconds*float64(time.Second)))
	defer cancel()
	switch step {
	case "incr":
		incr(counters, a)
		return answer{}, nil
	case "flush":
		return answer{"done": counters.Flush(within) == nil}, nil
	case "close":
		return answer{"done": counters.Close(within) == nil}, nil
	case "dropped":
		return answer{"dropped": counters.Dropped()}, nil
	case "get":
		found, err := counters.Get(ctx, a.Name)
		return answer{"value": found.Value, "exact": found.Exact, "exists": found.Exists}, err
	case "get_many":
		found, err := counters.GetMany(ctx, a.Names...)
		return answer{"values": values(found)}, err
	case "list":
		var found []countersink.Counter
		each := func(one countersink.Counter) error {
			found = append(found, one)
			return nil
		}
		var err error
		if a.Contains != "" {
			err = counters.ListContaining(ctx, a.Prefix, a.Contains, each)
		} else {
			err = counters.List(ctx, a.Prefix, each)
		}
		return answer{"names": names(found)}, err
	case "top":
		found, err := counters.Top(ctx, a.Prefix, a.N)
		return answer{"names": names(found)}, err
	case "series":
		found, err := counters.Series(ctx, a.Name, a.Period, time.Time{}, time.Time{})
		return answer{"total": found.Total}, err
	case "watch":
		var found []countersink.Counter
		each := func(one countersink.Counter) error {
			found = append(found, one)
			if one.Value == a.Until {
				return errEnough
			}
			return nil
		}
		var err error
		if a.Names != nil {
			err = counters.Watch(ctx, each, a.Names...)
		} else {
			err = counters.WatchPrefix(ctx, a.Prefix, each)
		}
		if errors.Is(err, errEnough) {
			err = nil
		}
		return answer{"values": values(found)}, err
	}
	return nil, fmt.Errorf("there is no step %q", step)
}

func incr(counters *countersink.Client, a arguments) {
	names, by := []string{a.Name}, int64(1)
	for number := 0; number < a.Each; number++ {
		names = append(names[:number], fmt.Sprintf("%s-%d", a.Name, number))
	}
	if a.By != nil {
		by = *a.By
	}
	for turn := 0; turn < a.Times || turn == 0; turn++ {
		for _, name := range names {
			switch {
			case a.ID != nil:
				counters.AddOnce(name, by, *a.ID)
			case a.By != nil:
				counters.Add(name, by)
			default:
				counters.Incr(name)
			}
		}
	}
}

func values(counters []countersink.Counter) []int64 {
	all := []int64{}
	for _, one := range counters {
		all = append(all, one.Value)
	}
	return all
}

func names(counters []countersink.Counter) []string {
	all := []string{}
	for _, one := range counters {
		all = append(all, one.Name)
	}
	return all
}

func renewed(keys []*string) func(context.Context) (string, error) {
	var mu sync.Mutex
	return func(context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		key := keys[0]
		if len(keys) > 1 {
			keys = keys[1:]
		}
		if key == nil {
			return "", errors.New("no key")
		}
		return *key, nil
	}
}

func main() {
	var options struct {
		URL      string
		Interval float64
		Patience float64
		Most     int
		Key      []*string
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &options); err != nil {
		log.Fatal(err)
	}
	chosen := countersink.Options{
		Interval: time.Duration(options.Interval * float64(time.Second)),
		Patience: time.Duration(options.Patience * float64(time.Second)),
		Most:     options.Most,
	}
	if options.Key != nil {
		chosen.KeyFunc = renewed(options.Key)
	}
	counters, err := countersink.New(options.URL, chosen)
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = counters.Close(ctx)
	}()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		<-terminated
		_ = counters.Flush(context.Background())
		os.Exit(0)
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var step string
		var given arguments
		if err := json.Unmarshal(lines.Bytes(), &[]any{&step, &given}); err != nil {
			log.Fatal(err)
		}
		said, err := do(counters, step, given)
		var failed *countersink.Error
		if errors.As(err, &failed) && failed.Status != 0 {
			said = answer{"error": failed.Detail, "status": failed.Status}
		} else if err != nil {
			said = answer{"error": err.Error(), "status": nil}
		}
		if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
			log.Fatal(err)
		}
	}
}
