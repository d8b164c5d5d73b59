"""Kunapuli, Bennett, Hu, Pang: Classification model selection via bilevel programming. Opt. Methods Softw., 2008."""
