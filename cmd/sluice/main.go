// Command sluice runs LLM calls at their provider's rate limit, and none beyond it.
package main

import (
	"context"
	"io"
	"log"
	"os"
	_ "time/tzdata" // resets are stated in zones that a host may not know

	"github.com/sluice-llm/sluice/internal/cli"
)

func main() {
	log.SetOutput(io.Discard) // net/http logs responses, which may contain keys
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
