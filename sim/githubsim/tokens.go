// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"net/http"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// serviceClaims are the claims in tokens of the Actions service.
type serviceClaims struct {
	jwt.RegisteredClaims
	Tenant  int    `json:"tenant,omitempty"`
	Session string `json:"session,omitempty"`
	Epoch   int    `json:"epoch"`
}

const (
	adminAudience = "admin"
	queueAudience = "queue"
)

func (s *Server) sign(audience string, ttl time.Duration, claims serviceClaims) string {
	now := s.now()
	claims.RegisteredClaims = jwt.RegisteredClaims{
		ID: s.newID(), Audience: jwt.ClaimStrings{audience},
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(s.signKey)
	if err != nil {
		panic(err) // signing with a byte key never fails
	}
	return token
}

// verify checks a token of the Actions service: signature, purpose, lifetime and epoch.
func (s *Server) verify(r *http.Request, audience string, epoch int) (serviceClaims, bool) {
	var claims serviceClaims
	_, err := jwt.ParseWithClaims(bearer(r), &claims,
		func(*jwt.Token) (any, error) { return s.signKey, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(s.now))
	return claims, err == nil && claims.Epoch == epoch
}

// verifyApp returns the App that a JWT authenticates.
func (s *Server) verifyApp(r *http.Request) (*App, answer) {
	token := bearer(r)
	if token == "" {
		return nil, restError(http.StatusUnauthorized, "A JSON web token could not be decoded")
	}
	var claims jwt.RegisteredClaims
	var app *App
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) {
		if app = s.appByIssuer(claims.Issuer); app == nil {
			return nil, jwt.ErrTokenInvalidIssuer
		}
		return app.PublicKey, nil
	}, jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithTimeFunc(s.now))
	switch {
	case app == nil && claims.Issuer != "":
		return nil, restError(http.StatusNotFound, "Integration not found")
	case err != nil:
		return nil, restError(http.StatusUnauthorized, "A JSON web token could not be decoded")
	case claims.ExpiresAt.After(s.now().Add(10 * time.Minute)):
		return nil, restError(http.StatusUnauthorized, "'Expiration time' claim ('exp') is too far in the future")
	}
	return app, answer{}
}

func (s *Server) appByIssuer(issuer string) *App {
	for _, app := range s.identities.apps {
		if issuer == app.ClientID || issuer == strconv.FormatInt(app.ID, 10) {
			return app
		}
	}
	return nil
}
