package cli_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-llm/sluice/internal/cli"
)

// asked are an initialisation, and a call of the tool "slow".
const asked = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{}}}
`

func TestWhatIsAskedHasAWhileToBeAnsweredAfterTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name     string
		takes    time.Duration
		end      func(in io.Closer, end, cut func())
		answered bool
		after    time.Duration
	}{
		{"an answer in time, after the input", 4 * time.Second, func(in io.Closer, _, _ func()) { in.Close() }, true, 4 * time.Second},
		{"an answer too late", time.Minute, func(in io.Closer, _, _ func()) { in.Close() }, false, 5 * time.Second},
		{"an answer in time, after a signal", 4 * time.Second, func(_ io.Closer, end, _ func()) { end() }, true, 4 * time.Second},
		{"an answer too late for a signal", time.Minute, func(_ io.Closer, end, _ func()) { end() }, false, 5 * time.Second},
		{"no answer after a second signal", time.Minute, func(_ io.Closer, end, cut func()) {
			end()
			time.AfterFunc(time.Second, cut)
		}, false, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, ask := io.Pipe()
				defer ask.Close()
				var out bytes.Buffer
				ended, end := context.WithCancel(t.Context())
				defer end()
				over, cut := context.WithCancel(t.Context())
				defer cut()
				stopped := false
				server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
				mcp.AddTool(server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
					select {
					case <-time.After(tt.takes):
					case <-ctx.Done():
						stopped = true
					}
					return nil, nil, nil
				})
				done := make(chan error, 1)
				go func() { done <- server.Run(t.Context(), cli.Answering(in, &out, ended, over)) }()
				if _, err := io.WriteString(ask, asked); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				start := time.Now()
				tt.end(ask, end, cut)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != tt.after {
					t.Errorf("it ended after %v, want %v", took, tt.after)
				}
				if answered := strings.Contains(out.String(), `"id":2,"result"`); answered != tt.answered || stopped == tt.answered {
					t.Errorf("answered: %v, stopped: %v; want an answer: %v\n%s", answered, stopped, tt.answered, &out)
				}
			})
		})
	}
}
