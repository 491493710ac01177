package gateway

import (
	"context"
	"io"
	"net/http"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// passOn sends a request that is of no known API to the upstream that it is configured for.
func (c *call) passOn(p *Passthrough) {
	if bad := c.identify(); bad != nil {
		c.refuse(*bad)
		return
	}
	if len(c.tenant.terms.Models) > 0 {
		c.refuse(refusal{status: http.StatusForbidden, kind: "model_not_allowed",
			message: "tenant " + c.tenant.terms.Name + " may use only certain models, and requests to this path name no model"})
		return
	}
	if c.tenant.terms.capped() {
		c.refuse(refusal{status: http.StatusForbidden, kind: "price_unknown",
			message: "tenant " + c.tenant.terms.Name + " has a spending cap, but the cost of requests to this path is unknown"})
		return
	}
	if bad := c.take(); bad != nil {
		c.refuse(*bad)
		return
	}
	defer c.body.close()
	c.through(false, func(ctx context.Context, asked sluice.Call) (provider.ForwardReply, error) {
		asked.Lane = p.Path
		return c.forward.Pass(ctx, provider.PassRequest{
			Upstream: p.Upstream, Method: c.r.Method, Path: c.r.URL.Path, Query: queryBut(c.r.URL), Header: outgoing(c.r.Header),
			Call: asked, Granted: c.granted,
			Body: func() (io.ReadCloser, int64, error) {
				rc, n := c.body.open()
				return rc, n, nil
			},
		})
	})
}
