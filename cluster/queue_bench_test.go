package cluster_test

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice/cluster"
)

// BenchmarkQueue passes tasks of 300 bytes through a whole queue (Add, Next, Complete, Results, Recorded), beside plain
// XADD, XREADGROUP and XACK of the same payloads in the same batches, without results and without anyone's right to anything:
//
//	SLUICE_TEST_REDIS=redis://127.0.0.1:6379 go test ./cluster -run '^$' -bench Queue -benchtime 1000000x
func BenchmarkQueue(b *testing.B) {
	url, client := realEngine(b)
	payload := bytes.Repeat([]byte("x"), 300)
	b.Run("plain", func(b *testing.B) { plain(b, client, payload) })
	b.Run("sluice", func(b *testing.B) {
		k := collect(b, connect(b, cluster.Config{URL: url}), cluster.JobConfig{Name: b.Name()})
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		for range 2 {
			trivialWorker(ctx, b, url)
		}
		memory := usedMemory(b, client)
		begin := time.Now()
		b.ResetTimer()
		go func() {
			for i := range b.N {
				if err := k.Add(ctx, cluster.Task{Number: int64(i), Payload: payload}); err != nil {
					return
				}
			}
		}()
		n, peak := 0, 0
		for o, err := range k.Results(ctx) {
			if err != nil {
				b.Fatal(err)
			}
			k.Recorded(o.Number)
			if n++; n == b.N {
				break
			}
			if n%50_000 == 0 {
				peak = max(peak, usedMemory(b, client)-memory)
			}
		}
		b.StopTimer()
		b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "tasks/s")
		b.ReportMetric(float64(peak)/(1<<20), "MiB-more")
		if err := k.Finish(ctx); err != nil {
			b.Fatal(err)
		}
	})
}

// trivialWorker has 500 goroutines that do nothing with the benchmark's tasks but complete them.
func trivialWorker(ctx context.Context, b *testing.B, url string) {
	w := work(b, connect(b, cluster.Config{URL: url}), b.Name())
	for range 500 {
		go func() {
			for {
				t, err := w.Next(ctx)
				if err != nil || w.Complete(ctx, t, t.Payload) != nil {
					return
				}
			}
		}()
	}
}

// plain is what a queue of the engine's own commands does.
func plain(b *testing.B, client rueidis.Client, payload []byte) {
	const batch = 500
	ctx, key, body := b.Context(), "{plain}", string(payload)
	client.Do(ctx, client.B().Del().Key(key).Build())
	client.Do(ctx, client.B().XgroupCreate().Key(key).Group("w").Id("0").Mkstream().Build())
	begin := time.Now()
	b.ResetTimer()
	var all sync.WaitGroup
	room := make(chan struct{}, cluster.DefaultWindow/batch)
	all.Go(func() {
		for i := 0; i < b.N; i += batch {
			room <- struct{}{}
			commands := make([]rueidis.Completed, 0, batch)
			for j := i; j < min(i+batch, b.N); j++ {
				commands = append(commands, client.B().Xadd().Key(key).Id("*").FieldValue().FieldValue(strconv.Itoa(j), body).Build())
			}
			for _, r := range client.DoMulti(ctx, commands...) {
				if err := r.Error(); err != nil {
					b.Error(err)
				}
			}
		}
	})
	for n := 0; n < b.N; {
		ask := client.B().Xreadgroup().Group("w", "me").Count(batch).Block(1000).Streams().Key(key).Id(">").Build()
		read, err := client.Do(ctx, ask).AsXReadSlices()
		if err != nil {
			b.Fatal(err)
		}
		ids := make([]string, 0, batch)
		for _, e := range read[key] {
			ids = append(ids, e.ID)
		}
		client.Do(ctx, client.B().Xack().Key(key).Group("w").Id(ids...).Build())
		client.Do(ctx, client.B().Xtrim().Key(key).Minid().Threshold(ids[len(ids)-1]).Build())
		if (n+len(ids))/batch > n/batch {
			<-room
		}
		n += len(ids)
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "tasks/s")
	client.Do(ctx, client.B().Del().Key(key).Build())
}

// usedMemory is what the engine says it has taken.
func usedMemory(b *testing.B, client rueidis.Client) int {
	info, err := client.Do(b.Context(), client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := bytes.Cut([]byte(info), []byte("used_memory:"))
	line, _, _ := bytes.Cut(after, []byte("\r\n"))
	n, err := strconv.Atoi(string(line))
	if err != nil {
		b.Fatal(err)
	}
	return n
}
