// Command workers is a persistent worker for sluice exec --persistent: it starts once and answers one item after another. Put
// your own work into the function work. Beside it, worker.py is the same in Python.
//
//	go build -o worker ./workers
//	sluice exec --persistent --items items.jsonl -- ./worker
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"
)

// heartbeat is how often the worker says that it lives. Sluice takes one for hung that says nothing for 60 s.
const heartbeat = 15 * time.Second

func main() {
	// Whatever else prints goes to standard error: a line among the answers that is none would end this worker.
	answers := os.Stdout
	os.Stdout = os.Stderr
	if err := serve(os.Stdin, answers); err != nil {
		log.Fatal(err)
	}
}

// request is an item.
type request struct {
	ID      string          `json:"id"`
	Attempt int             `json:"attempt"`
	Item    json.RawMessage `json:"item"` // an object, or a string
}

// response is the answer to it.
type response struct {
	ID     string   `json:"id"`
	OK     bool     `json:"ok"`
	Result any      `json:"result,omitempty"`
	Error  *failure `json:"error,omitempty"`
}

// failure is why there is no result. All but Message may be left out.
type failure struct {
	Message    string  `json:"message"`
	Kind       string  `json:"kind,omitempty"` // "rate_limit", "overloaded", "timeout", "bad_request" …
	RetryAfter float64 `json:"retry_after_s,omitempty"`
}

// work returns the result of one item, anything that JSON can hold.
func work(r request) (any, error) {
	var item struct{ Prompt string }
	if json.Unmarshal(r.Item, &item.Prompt) != nil && json.Unmarshal(r.Item, &item) != nil {
		return nil, errors.New("want text, or an object with a prompt")
	}
	return map[string]int{"words": len(strings.Fields(item.Prompt))}, nil
}

// serve answers items until there are no more.
func serve(in io.Reader, out io.Writer) error {
	var mu sync.Mutex // a heartbeat must not come in the middle of an answer
	lines := json.NewEncoder(out)
	say := func(message any) error {
		mu.Lock()
		defer mu.Unlock()
		return lines.Encode(message)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for ticker := time.NewTicker(heartbeat); ; {
			select {
			case <-ticker.C:
				_ = say(map[string]bool{"heartbeat": true}) // whether there is anyone to hear it, the next answer tells
			case <-ctx.Done():
				ticker.Stop()
				return
			}
		}
	})

	items := json.NewDecoder(bufio.NewReader(in))
	for {
		var r request
		if err := items.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		answer := response{ID: r.ID}
		result, err := work(r)
		if err != nil {
			answer.Error = &failure{Message: err.Error()} // it fails this item alone
		} else {
			answer.OK, answer.Result = true, result
		}
		if err := say(answer); err != nil {
			return err
		}
	}
}
