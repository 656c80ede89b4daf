"""The page: HTML at `/` over the same rooms as the API. A section is a router and its templates."""
