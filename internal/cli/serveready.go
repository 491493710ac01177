package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/provider"
)

// newServeReady returns the command by which a host without a shell or curl sees whether a gateway is ready.
func newServeReady(s *streams) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "ready [URL]",
		Short: "Ask a gateway whether clients may be sent to it",
		Long: `Ask a gateway whether clients may be sent to it, as its /readyz says, and print the answer. The exit code is 0 if they may,
and 1 if they may not or nothing answers.

URL is the gateway's address, http://127.0.0.1:8787 where none is given.`,
		Example: `  sluice serve ready
  sluice serve ready http://127.0.0.1:9000 --timeout 2s`,
		Args: atMost(1, "one URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := "http://127.0.0.1:8787"
			if len(args) > 0 {
				address = args[0]
			}
			u, err := url.Parse(address)
			if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
				return usageError(errors.New("URL is not the address of a gateway"), "give one such as http://127.0.0.1:8787")
			}
			if timeout <= 0 {
				return usageError(fmt.Errorf("--timeout %s is not above zero", timeout), "say how long the answer may take, such as --timeout 2s")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return askReady(ctx, s, u.Scheme+"://"+u.Host)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long the answer may take")
	return cmd
}

// askReady prints what the gateway at base says.
func askReady(ctx context.Context, s *streams, base string) error {
	const hint = "`sluice serve` prints where it listens, and on standard error what is wrong"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
	if err != nil {
		return err
	}
	// What a proxy before it sends clients away to, such as a page to log in, is no gateway.
	client := &http.Client{Transport: provider.NewBase(1), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("%s does not answer: %w", base, failed.Err) // which named the path and the method, too
	}
	if err != nil {
		return &exitError{code: exitFailed, err: err, hint: hint}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return &exitError{code: exitFailed, err: err, hint: hint}
	}
	said := escape(strings.TrimSpace(string(text)))
	if resp.StatusCode != http.StatusOK {
		return &exitError{code: exitFailed, err: fmt.Errorf("%s is not ready: status %d, %s", base, resp.StatusCode, said), hint: hint}
	}
	_, err = fmt.Fprintln(s.out, said)
	return err
}
