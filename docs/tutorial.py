"""Train a controller on learned skills: python docs/tutorial.py results/quick/point/disk/seed0 [decisions]"""

import sys

from stable_baselines3 import PPO

import disk

skills = disk.load(sys.argv[1])  # a run, a file of skills, or runs:/… of MLflow
env = disk.SkillEnv(disk.GoalEnv("point", horizon=160), skills, steps=5)  # an action is a skill for 5 steps
controller = PPO("MlpPolicy", env, seed=0, device="cpu")
controller.learn(int(sys.argv[2]) if len(sys.argv) > 2 else 30_000)

for episode in range(5):
    obs, info = env.reset(seed=1_000_000 + episode)
    start, over = info["distance"], False
    while not over:
        choice, _ = controller.predict(obs, deterministic=True)
        obs, reward, terminated, truncated, info = env.step(choice)
        over = terminated or truncated
    print(f"goal {info['goal'].round(1)}: {start:.1f} m away at the start, {info['distance']:.1f} m at the end")
