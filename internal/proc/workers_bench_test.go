//go:build unix

package proc_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-llm/sluice/internal/proc"
)

// benchWorkers is how many processes a benchmark has.
const benchWorkers = 2

// BenchmarkWorkers is what an item costs that persistent workers answer, beside lines that go through as many processes and
// back with nothing around them.
func BenchmarkWorkers(b *testing.B) {
	b.Run("sluice", func(b *testing.B) {
		ws := staff(b, "echo as an answer", proc.WorkersConfig{})
		shared(b, func() func(n int64) error {
			return func(n int64) error {
				_, err := ws.Call(b.Context(), proc.Request{ID: strconv.FormatInt(n, 10), Attempt: 1, Item: []byte(`{"prompt":"Why is the sky blue?"}`)})
				return err
			}
		})
	})
	b.Run("pipe", func(b *testing.B) {
		shared(b, func() func(n int64) error {
			cat := exec.Command(os.Args[0])
			cat.Env = append(os.Environ(), roleVariable+"=echo")
			in, err := cat.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			out, err := cat.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cat.Start(); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				in.Close()
				cat.Wait()
			})
			lines := bufio.NewReader(out)
			return func(n int64) error {
				if _, err := in.Write(append(strconv.AppendInt([]byte(`{"id":"`), n, 10), `","ok":true,"result":{"prompt":"Why is the sky blue?"}}`+"\n"...)); err != nil {
					return err
				}
				_, err := lines.ReadSlice('\n')
				return err
			}
		})
	})
}

// shared makes b.N calls through benchWorkers callers.
func shared(b *testing.B, caller func() func(n int64) error) {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	callers := make([]func(int64) error, benchWorkers)
	for i := range callers {
		callers[i] = caller()
		if err := callers[i](int64(-1 - i)); err != nil { // the process is up
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, call := range callers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := call(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
