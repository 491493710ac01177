package command_test

import (
	"os"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/internal/command"
)

// BenchmarkShortCommands runs `true` by two workers, for `seq 5000 | xargs -P2 -n1 true` to stand beside.
func BenchmarkShortCommands(b *testing.B) {
	for name, guarded := range map[string]bool{"alone": false, "guard": true} {
		b.Run(name, func(b *testing.B) {
			var g *command.Guard
			if guarded {
				var err error
				if g, err = command.StartGuard([]string{os.Args[0], "guard"}, nil); err != nil {
					b.Fatal(err)
				}
				defer g.Close()
			}
			work := make(chan struct{})
			var wg sync.WaitGroup
			b.ResetTimer()
			for range 2 {
				wg.Go(func() {
					for range work {
						if _, err := g.Run(b.Context(), command.Spec{Args: []string{"true"}, Env: env}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}
