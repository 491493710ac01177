// Command sluice runs LLM calls at their provider's rate limit, and none beyond it.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // resets are stated in zones that a host may not know

	"github.com/sluice-llm/sluice/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
