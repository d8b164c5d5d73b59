"""Bennett, Hu, Kunapuli, Pang: Model selection via bilevel optimization. IJCNN, 2006."""
