// Command limiters is a rate limiter of Go before a back end: limiters PORT BACKEND ulule|httprate|rate
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/go-chi/httprate"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

func main() {
	back := &url.URL{Scheme: "http", Host: "127.0.0.1:" + os.Args[2]}
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 1000
	handler := http.Handler(httputil.NewSingleHostReverseProxy(back))
	switch os.Args[3] {
	case "ulule":
		handler = stdlib.NewMiddleware(limiter.New(memory.NewStore(), limiter.Rate{Period: 10 * time.Second, Limit: 100})).Handler(handler)
	case "httprate":
		handler = httprate.LimitByIP(100, 10*time.Second)(handler)
	case "rate":
		bucket, next := rate.NewLimiter(20, 60), handler
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !bucket.Allow() {
				http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], handler))
}
